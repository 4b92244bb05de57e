"""Tiles of a matrix, and the largest entries of each tile.

A side of m entries is cut into ⌈m/t⌉ pieces whose lengths differ by 1 at most.  So a matrix has tiles of up
to four shapes.  Tiles of one shape make up a rectangle, and are worked on together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Float, Indices

_TOGETHER = 2**20  # entries of tiles whose magnitudes are compared at a time: some of a processor's cache


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

    def of(self, x: Float) -> Float:
        """The tiles of the matrix whose rows x holds one after the other, shape (count, size)."""
        stop, end = self.top + self.down * self.rows, self.left + self.across * self.columns
        matrix = x.reshape(-1, self.width)[self.top : stop, self.left : end]
        cut = matrix.reshape(self.down, self.rows, self.across, self.columns)
        return cut.swapaxes(1, 2).reshape(self.count, self.size)

    def indices(self, positions: Indices) -> Indices:
        """The indices in x of positions in the tiles, shape (count, k), tile after tile."""
        tile = np.arange(self.count)[:, None]
        row = self.top + tile // self.across * self.rows + positions // self.columns
        column = self.left + tile % self.across * self.columns + positions % self.columns
        return (row * self.width + column).ravel()


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
    """(where they begin, their number, their length) for the longer and the shorter pieces of m entries."""
    pieces = -(-m // t)
    short, longer = divmod(m, pieces)
    if longer:
        yield 0, longer, short + 1
    yield longer * (short + 1), pieces - longer, short


def largest(tiles: Float, k: int) -> Indices:
    """The positions of the k largest magnitudes of each tile, shape (count, k), increasing.

    tiles  shape (count, size).  Ties go to the lowest position.  Magnitudes are compared as ``TopK`` does
    """
    count, size = tiles.shape
    if k == size:
        return np.broadcast_to(np.arange(k), (count, k))
    found, step = np.empty((count, k), np.int64), max(1, _TOGETHER // size)
    for start in range(0, count, step):
        bits = np.abs(tiles[start : start + step]).view(f"u{tiles.itemsize}")
        found[start : start + step] = _largest(bits, k)
    return found


def _largest(bits: NDArray[np.unsignedinteger], k: int) -> Indices:
    at = bits.shape[1] - k
    threshold = np.partition(bits, at, axis=1)[:, at, None]
    kept, tied = bits > threshold, bits == threshold
    kept |= tied & (np.cumsum(tied, axis=1) <= k - kept.sum(axis=1, keepdims=True))
    return np.nonzero(kept)[1].reshape(-1, k)
