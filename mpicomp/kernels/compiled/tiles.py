"""The largest entries of each tile of a matrix, compiled.

The k-th largest magnitude of a tile is found by bisection on its bits: a pass over the tile, which lies in
the processor's cache, counts the magnitudes that reach a bound, 64 at a time.  The bisection ends at the
first bound which k magnitudes reach.
"""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Float, Indices
from mpicomp.kernels.compiled.jit import (
    BITS,
    int64,
    kernel,
    reaching,
    read,
    set_bits,
    trailing_zeros,
    types,
    uint64,
    void,
    write,
)
from mpicomp.kernels.compiled.selection import bits_of, mask_of
from mpicomp.kernels.threads import sliced
from mpicomp.kernels.tiles import Tiles

_SPARE = 68  # a word's positions, and what the last four of them may lack


def top_k_of_tiles(x: Float, tiles: Tiles, k: int) -> Indices:
    """The indices, in the vector of the tiles one after the other, of the k largest magnitudes of each.

    They increase; ties go to the lowest index.
    """
    if k == tiles.size:
        return np.arange(tiles.count * k)
    bits, found = bits_of(x), np.empty(tiles.count * k, dtype=np.int64)
    shape = (tiles.top, tiles.left, tiles.across, tiles.rows, tiles.columns, tiles.width)

    def select(start: int, stop: int) -> None:
        first, last = -(-start // tiles.size), -(-stop // tiles.size)  # the tiles that begin in this slice
        if first < last:
            _select(bits, *shape, first, last, mask_of(bits), found[first * k : last * k])

    sliced(select, tiles.count * tiles.size)
    return found


@kernel(*(int64(read(u), u, u) for u in BITS))
def _reaching(magnitudes, bound, mask):
    count = 0
    for start in range(0, magnitudes.size, 64):
        count += np.int64(set_bits(reaching(magnitudes, start, mask, bound)))
    return count


@kernel(*(types.UniTuple(uint64, 2)(read(u), uint64, uint64) for u in BITS))
def _ends(magnitudes, low, high):
    """The least of the magnitudes from ``low`` to below ``high``, and one more than the largest."""
    least, largest = high, low
    for j in range(magnitudes.size):
        magnitude = np.uint64(magnitudes[j])
        if low <= magnitude < high:
            least, largest = min(least, magnitude), max(largest, magnitude)
    return least, largest + np.uint64(1)


@kernel(*(types.Tuple((u, int64))(read(u), int64, u) for u in BITS))
def _bound(magnitudes, k, mask):
    """(a bound that k magnitudes reach, or the k-th largest, which more reach; how many equal to it count).

    The search goes down from the largest magnitude by 1, 2, 4, .. octaves, and then bisects.  Where a bound
    in the middle parts nothing, as with ties, the ends move to the nearest magnitudes.
    """
    one, high = np.uint64(1), np.uint64(0)
    for j in range(magnitudes.size):
        high = max(high, np.uint64(magnitudes[j]))
    high, step, above = high + one, np.uint64(1 << (23 if mask >> 31 == 0 else 52)), 0
    low = high - min(step, high)
    count = _reaching(magnitudes, low, mask)
    while count < k:
        above, high, step = count, low, step + step
        low = high - min(step, high)
        count = _reaching(magnitudes, low, mask)
    while count > k and high - low > one:
        middle = low + ((high - low) >> one)
        reached = _reaching(magnitudes, middle, mask)
        if reached in (count, above):
            low, high = _ends(magnitudes, low, high)
        elif reached < k:
            high, above = middle, reached
        else:
            low, count = middle, reached
    return low, k - above if count > k else k


@kernel(*(int64(read(u), u, u, write(int64)) for u in BITS))
def _collect(magnitudes, bound, mask, out):
    """Fill ``out`` with the positions of the magnitudes that reach the bound; return how many those are.

    Four are written at a time, also where fewer are found: a branch for each could not be predicted.
    """
    count = 0
    for start in range(0, magnitudes.size, 64):
        passed = reaching(magnitudes, start, mask, bound)
        found = np.int64(set_bits(passed))
        for four in range(0, found, 4):
            for j in range(4):
                out[count + four + j] = start + np.int64(trailing_zeros(passed))
                passed &= passed - np.uint64(1)
        count += found
    return count


@kernel(*(void(read(u), *[int64] * 8, u, write(int64)) for u in BITS))
def _select(bits, top, left, across, rows, columns, width, first, last, mask, out):
    """Fill ``out`` with the indices in the tiles from ``first`` to the one before ``last``."""
    size, k = rows * columns, out.size // (last - first)
    magnitudes = np.zeros(-(-size // 64) * 64, bits.dtype)
    positions = np.empty(size + _SPARE, np.int64)
    for tile in range(first, last):
        corner = (top + tile // across * rows) * width + left + tile % across * columns
        for row in range(rows):
            for column in range(columns):
                magnitudes[row * columns + column] = bits[corner + row * width + column] & mask
        bound, ties = _bound(magnitudes, k, mask)
        at = (tile - first) * k
        for j in range(_collect(magnitudes, bound, mask, positions)):
            tied = magnitudes[positions[j]] == bound
            if not tied or ties > 0:
                out[at] = tile * size + positions[j]
                at += 1
            ties -= tied
