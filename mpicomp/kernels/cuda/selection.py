"""Selecting coordinates: marks, one bit each, and the positions of marks."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import StreamName
from mpicomp.kernels.cuda.launch import BLOCK, NULL, THREADS, Array, Launching, flat, suffix
from mpicomp.kernels.definition.selection import least_bits

_TILE = 1024  # words of marks a block


def top_k(on: Launching, x: Array, k: int) -> Array:
    """The indices of the k largest magnitudes, increasing; ties go to the lowest index."""
    d, name = x.size, suffix(x)
    if k == d:
        return on.xp.arange(d)
    words = words_of(d)
    state = on.xp.zeros(3 + 4096, dtype=np.uint64)
    s, histogram = state[:3], state[3:]
    above, inside = on.empty(words, np.uint32), on.empty(words, np.uint32)
    grid = min(-(-d // BLOCK), 4 * on.device.multiprocessors)
    on.device.launch("selection", f"first_digit_{name}", grid, THREADS, x, d, k, s, histogram)
    on.device.launch("selection", f"mark_{name}", grid, THREADS, x, d, above, inside, s, histogram)
    shift = 8 * x.itemsize - 1 - 22
    for bits in (9,) if x.itemsize == 4 else (11, 10, 10, 10):
        shift -= bits
        grid = min(-(-words // THREADS), 4 * on.device.multiprocessors)
        name_ = f"refine_{name}"
        on.device.launch("selection", name_, grid, THREADS, x, inside, words, shift, bits, s, histogram)
    tiles = -(-words // _TILE)
    counts, ties = on.empty(tiles + 1, np.uint64), on.empty(tiles + 1, np.uint64)
    on.device.launch("selection", f"settle_{name}", tiles, THREADS, x, above, inside, words, s, counts, ties)
    out = on.empty(k, np.int64)
    on.device.launch("selection", "collect", tiles, THREADS, above, inside, words, s, counts, ties, k, out)
    return out


def at_least(on: Launching, x: Array, lam: float) -> Array:
    """The indices where |x_j| >= lam and x_j != 0, increasing."""
    return _marked(on, x, least_bits(lam, x.dtype))


def nonzero(on: Launching, x: Array) -> Array:
    """The indices where x_j is not 0, increasing."""
    return _marked(on, x, 1)


def count_nonzero(on: Launching, x: Array) -> int:
    """The number of indices where x_j is not 0; a comparison by the device may take a subnormal x_j for 0."""
    return int(nonzero(on, x).size)


def heads(on: Launching, stream: StreamName, d: int, p: float | Array) -> Array:
    """The indices whose words are below p 2^32, increasing; p is a number or a float64 array, shape (d,)."""
    marks = on.empty(words_of(d), np.uint32)
    each, all_ = (NULL, p) if isinstance(p, float) else (p, 0.0)
    on.dense(d, "selection", "mark_heads", d, each, all_, *flat(stream), marks)
    return positions_of(on, marks)


def _marked(on: Launching, x: Array, least: int) -> Array:
    marks = on.empty(words_of(x.size), np.uint32)
    on.dense(x.size, "selection", f"at_least_{suffix(x)}", x, x.size, least, marks)
    return positions_of(on, marks)


def positions_of(on: Launching, marks: Array) -> Array:
    """The positions of marks."""
    tiles = -(-marks.size // _TILE)
    counts = on.empty(tiles + 1, np.uint64)
    arrived = on.xp.zeros(1, dtype=np.uint32)
    on.device.launch(
        "selection", "tally", tiles, THREADS, marks, marks.size, arrived, counts, on.device.pointer
    )
    *_, found = on.noted()
    out = on.empty(found, np.int64)
    args = (marks, NULL, marks.size, NULL, counts, NULL, found, out)
    on.device.launch("selection", "collect", tiles, THREADS, *args)
    return out


def words_of(bits: int) -> int:
    """The number of 32-bit words of marks for ``bits`` coordinates."""
    return 32 * -(-bits // 1024)
