"""The binomial tree in which a broadcast spreads from one rank to all.

Ranks are counted from the root, which has number 0.  Number v > 0 gets the message from v without its highest
bit, and sends it to v + 2^k for each 2^k > v.  So the number of ranks that have the message doubles with each
step, and ceil(log2 R) steps reach R ranks.  If there are several roots, spread evenly over the R ranks, all
ranks send nearly equally much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def parent(rank: int, root: int, ranks: int) -> int:
    """The rank from which ``rank`` gets the message; ``rank`` must not be the root."""
    v = (rank - root) % ranks
    return (root + v - (1 << (v.bit_length() - 1))) % ranks


def depth(rank: int, root: int, ranks: int) -> int:
    """The number of hops from the root to ``rank``."""
    return ((rank - root) % ranks).bit_count()


def children(rank: int, root: int, ranks: int) -> list[int]:
    """The ranks to which ``rank`` sends the message, the one with the largest subtree first."""
    v = (rank - root) % ranks
    steps = range(v.bit_length(), (ranks - 1).bit_length())
    return [(root + v + (1 << k)) % ranks for k in steps if v + (1 << k) < ranks]


def sends(roots: Sequence[int], ranks: int) -> int:
    """The number of messages that the busiest rank sends, if a message spreads from each of ``roots``."""
    return max(sum(len(children(rank, root, ranks)) for root in roots) for rank in range(ranks))


def steps(ranks: int) -> int:
    """The number of steps until all ranks have the message, ceil(log2 ranks): a bound on every ``depth``."""
    return (ranks - 1).bit_length()


def pays(roots: Sequence[int], ranks: int) -> bool:
    """Whether trees take at most a third of the time of direct messages from each root to all ranks.

    The unit of time is one send of one rank.  A later step of a tree waits for the steps before it, and for
    a rank to wake up.  Hence the margin of a third: with 16 ranks and 2 roots, where trees take half of the
    time by this count, they made long messages faster and short ones slower.
    """
    direct = (ranks - 1) * max(Counter(roots).values())
    mean = len(roots) * (ranks - 1) / ranks  # messages that a rank sends; quickly known
    return 3 * mean <= direct and 3 * (sends(roots, ranks) + steps(ranks) - 1) <= direct
