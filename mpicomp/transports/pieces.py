"""Messages in pieces.

A message is cut where it is too long for one call of MPI, or where short pieces arrive sooner.  All pieces
are as long as the first, but for the last, which may be shorter.  The tag of each says what the message is
and how many pieces there are.  So a rank that has met the first one asks for all others at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpicomp.base.bits import Bytes

TAGS = 4  # messages have tags below this one
MOST = 8191  # pieces of a message: then a tag is at most 32767, which every MPI allows


def cut(message: Bytes, tag: int, longest: int) -> Iterator[tuple[Bytes, int]]:
    """The pieces of ``message``, each with its tag.

    They have ``longest`` bytes at most, or as many as it takes for ``MOST`` pieces.
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
