"""Tiles of a matrix.

A side of m entries is cut into ⌈m/t⌉ pieces whose lengths differ by 1 at most.  So a matrix has tiles of up
to four shapes.  Tiles of one shape make up a rectangle, and are worked on together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from mpicomp.base.arrays import Array, Indices


@dataclass(frozen=True)
class Tiles:
    """A rectangle of a matrix, cut into ``down`` x ``across`` tiles of ``rows`` x ``columns`` entries.

    top, left  where the rectangle begins
    width      the columns of the whole matrix
    """

    top: int
    left: int
    down: int
    across: int
    rows: int
    columns: int
    width: int

    @property
    def count(self) -> int:
        return self.down * self.across

    @property
    def size(self) -> int:
        """The entries of a tile."""
        return self.rows * self.columns

    def of(self, x: Array) -> Array:
        """The tiles of the matrix that x holds row by row, one tile a row: shape (count, size)."""
        stop, end = self.top + self.down * self.rows, self.left + self.across * self.columns
        matrix = x.reshape(-1, self.width)[self.top : stop, self.left : end]
        cut = matrix.reshape(self.down, self.rows, self.across, self.columns)
        return cut.swapaxes(1, 2).reshape(self.count, self.size)

    def indices(self, ordered: Indices) -> Indices:
        """Convert indices into ``of(x).ravel()`` to indices into x."""
        tile, position = ordered // self.size, ordered % self.size
        row = self.top + tile // self.across * self.rows + position // self.columns
        column = self.left + tile % self.across * self.columns + position % self.columns
        return row * self.width + column


@lru_cache
def tiles_of(rows: int, columns: int, t: int) -> tuple[Tiles, ...]:
    """The tiles of t times t entries of a matrix; a single row or column is cut to pieces of t² entries."""
    if rows == 1 or columns == 1:
        d = rows * columns
        return tuple(Tiles(0, left, 1, n, 1, size, d) for left, n, size in _pieces(d, t * t))
    return tuple(
        Tiles(top, left, down, across, height, width, columns)
        for top, down, height in _pieces(rows, t)
        for left, across, width in _pieces(columns, t)
    )


def _pieces(m: int, t: int) -> Iterator[tuple[int, int, int]]:
    """Cut m entries: yield (first entry, number, length) of the longer pieces, if any, and of the shorter."""
    pieces = -(-m // t)
    short, longer = divmod(m, pieces)
    if longer:
        yield 0, longer, short + 1
    yield longer * (short + 1), pieces - longer, short
