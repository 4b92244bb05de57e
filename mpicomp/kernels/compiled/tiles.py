"""The largest entries of each tile of a matrix, compiled: a tile lies in the processor's cache."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array, Indices
from mpicomp.kernels.compiled.jit import BITS, int64, kernel, read, void, write
from mpicomp.kernels.compiled.selection import SPARE, bits_of, mask_of, select
from mpicomp.kernels.threads import sliced
from mpicomp.kernels.tiles import Tiles


def top_k_of_tiles(x: Array, tiles: Tiles, k: int) -> Indices:
    """The indices of the k largest magnitudes of each tile, as indices into ``tiles.of(x).ravel()``.

    They increase; ties go to the lowest index.
    """
    if k == tiles.size:
        return np.arange(tiles.count * k)
    bits, found = bits_of(x), np.empty(tiles.count * k, dtype=np.int64)
    shape = (tiles.top, tiles.left, tiles.across, tiles.rows, tiles.columns, tiles.width)

    def work(start: int, stop: int) -> None:
        first, last = -(-start // tiles.size), -(-stop // tiles.size)  # the tiles that begin in this slice
        if first < last:
            _select_each(bits, *shape, first, last, mask_of(bits), found[first * k : last * k])

    sliced(work, tiles.count * tiles.size)
    return found


@kernel(*(void(read(u), *[int64] * 8, u, write(int64)) for u in BITS))
def _select_each(bits, top, left, across, rows, columns, width, first, last, mask, out):
    """Fill ``out`` with the k chosen indices of each of the tiles first, .., last - 1."""
    size, k = rows * columns, out.size // (last - first)
    tile, chosen = np.empty(size, bits.dtype), np.empty(k + SPARE, np.int64)
    for i in range(first, last):
        corner = (top + i // across * rows) * width + left + i % across * columns
        for row in range(rows):
            for column in range(columns):
                tile[row * columns + column] = bits[corner + row * width + column]
        select(tile, k, mask, chosen)
        for j in range(k):
            out[(i - first) * k + j] = i * size + chosen[j]
