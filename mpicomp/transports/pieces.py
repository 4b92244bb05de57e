"""Cut a message into pieces, and encode their number in the MPI tag.

A message is cut if it is too long for one call of MPI, or if short pieces arrive sooner.  All pieces are
equally long, but the last may be shorter.  The tag of each piece holds the message's own tag and the number
of pieces.  So a rank that has matched the first piece posts the receives of all others at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpicomp.base.bits import Bytes

TAGS = 4  # messages have tags below this one
MOST = 8191  # pieces of a message: then a tag is at most 32767, which every MPI allows


def cut(message: Bytes, tag: int, longest: int) -> Iterator[tuple[Bytes, int]]:
    """The pieces of ``message``, each with its tag.

    A piece has at most ``longest`` bytes, or more if there would be more than ``MOST`` pieces.
    """
    count = min(max(1, -(-len(message) // longest)), MOST)
    length = max(1, -(-len(message) // count))
    count = max(1, -(-len(message) // length))  # fewer, where the last ones would be empty
    for i in range(count):
        yield message[i * length : (i + 1) * length], tag_of_piece(tag, count)


def tag_of_piece(tag: int, count: int) -> int:
    """The tag of each of ``count`` pieces of a message with this tag."""
    return tag + TAGS * (count - 1)


def read(tag: int) -> tuple[int, int]:
    """The message's own tag and its number of pieces, by the tag of a piece."""
    return tag % TAGS, tag // TAGS + 1
