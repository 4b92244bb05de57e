"""The tree in which a message spreads from one rank to all.

Count ranks from the root on: the root has number 0.  Number v > 0 gets the message from v without its highest
bit, and sends it to v + 2^k for each 2^k > v.  So the ranks that have the message double with each step, and
ceil(log2 R) steps reach R ranks.  For roots that lie evenly between R ranks, ranks send nearly equally much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def parent(rank: int, root: int, ranks: int) -> int:
    """The rank from which ``rank``, which is not the root, gets the message."""
    v = (rank - root) % ranks
    return (root + v - (1 << (v.bit_length() - 1))) % ranks


def depth(rank: int, root: int, ranks: int) -> int:
    """The number of messages from the root to ``rank``, one after the other."""
    return ((rank - root) % ranks).bit_count()


def children(rank: int, root: int, ranks: int) -> list[int]:
    """The ranks to which ``rank`` sends the message, first the one with the most ranks behind it."""
    v = (rank - root) % ranks
    steps = range(v.bit_length(), (ranks - 1).bit_length())
    return [(root + v + (1 << k)) % ranks for k in steps if v + (1 << k) < ranks]


def sends(roots: Sequence[int], ranks: int) -> int:
    """The messages that the busiest rank sends, if a message spreads from each of ``roots``."""
    return max(sum(len(children(rank, root, ranks)) for root in roots) for rank in range(ranks))


def steps(ranks: int) -> int:
    """The messages from the root to the farthest rank, one after the other, at most."""
    return (ranks - 1).bit_length()


def pays(roots: Sequence[int], ranks: int) -> bool:
    """Whether trees take at most a third of the time of messages from each root to all ranks directly.

    The unit of time is that in which a rank sends a message.  What comes after the first step of a tree waits
    for the steps before it.  Each step also waits for a rank to wake up, hence the margin: with 16 ranks and
    2 roots, where half would do, trees made long messages faster and short ones slower.
    """
    direct = (ranks - 1) * max(Counter(roots).values())
    mean = len(roots) * (ranks - 1) / ranks  # messages that a rank sends; quickly known
    return 3 * mean <= direct and 3 * (sends(roots, ranks) + steps(ranks) - 1) <= direct
