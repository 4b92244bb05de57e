"""The blocks of a vector: consecutive entries, each block served by one rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from mpicomp.base.bits import Bytes
from mpicomp.base.parts import Part, Parts


@dataclass(frozen=True)
class Blocks:
    """A vector in R^d, cut into consecutive blocks of nearly equal length.

    parts  for each block, its parts: whole parts of the vector, or some rows of a part that is cut along its
           first axis.  Such rows have the name of their part
    """

    parts: tuple[Parts, ...]

    @classmethod
    def cut(cls, whole: Parts, count: int) -> Blocks:
        """Cut the vector of the parts ``whole`` into ``count`` blocks, or fewer if some would be empty.

        Block b begins near entry b d / count, at the nearest row of the part there.  The first axis of a
        part counts its rows, so a part with one axis is cut anywhere.
        """
        bounds = sorted({_nearest_row(whole, b * whole.size // count) for b in range(count + 1)})
        longest = whole.whole or whole
        return cls(tuple(Parts(tuple(_parts_between(whole, *ends)), longest) for ends in pairwise(bounds)))

    def __len__(self) -> int:
        return len(self.parts)

    @cached_property
    def size(self) -> int:
        """The number of entries of the vector, d."""
        return sum(parts.size for parts in self.parts)

    @cached_property
    def _slices(self) -> list[slice]:
        sizes = [parts.size for parts in self.parts]
        return [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]

    def slices(self, m: int) -> list[slice]:
        """The slice of each block in a vector of m entries.

        If m is not d, the vector does not have the parts.  It is cut evenly, perhaps with empty slices.
        """
        if m != self.size:
            return [slice(b * m // len(self), (b + 1) * m // len(self)) for b in range(len(self))]
        return self._slices


def _nearest_row(whole: Parts, entry: int) -> int:
    """The start of the row that is nearest to ``entry``, or the end of the vector."""
    for part, where in whole:
        if entry < where.stop:
            row = _row(part)
            return where.start + (entry - where.start + row // 2) // row * row
    return whole.size


def _row(part: Part) -> int:
    """The number of entries of a row of the part: the product of all axes but the first."""
    return part.size // (part.shape or (1,))[0]


def _parts_between(whole: Parts, start: int, stop: int) -> Iterator[Part]:
    """The parts, whole or cut to rows, that hold the entries ``start``, .., ``stop`` - 1."""
    for part, where in whole:
        first, last = max(start, where.start), min(stop, where.stop)
        if first < last:
            rows = (last - first) // _row(part)
            yield part if last - first == part.size else Part(part.name, (rows, *part.shape[1:]))


@dataclass(frozen=True)
class BlockMessages:
    """A message made of one message for each block.  In a record it takes the place of ``Bytes``."""

    of_blocks: tuple[Bytes, ...]

    def __len__(self) -> int:
        """The bytes of all blocks."""
        return sum(map(len, self.of_blocks))
