"""Norms, compiled: the blocks of the sum's tree are folded in registers, eight times at once at first.

A sum that is neither huge nor tiny proves that no scaling was needed; else the definition is asked.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array
from mpicomp.kernels.compiled.jit import BITS, FLOATS, float64, kernel, read, void, write
from mpicomp.kernels.compiled.selection import bits_of, mask_of
from mpicomp.kernels.definition import reductions as definition
from mpicomp.kernels.definition.reductions import BLOCK
from mpicomp.kernels.threads import sliced


def norm(x: Array, p: str) -> float:
    """The 2-norm or max-norm of x; not finite if an entry is not, or if it is beyond double precision."""
    if p == "inf":
        bits = bits_of(x)
        tops = sliced(lambda a, b: _largest(bits[a:b], mask_of(bits)), x.size)
        top = np.array([max(tops)], dtype=np.uint64)
        return float(top.astype(bits.dtype).view(x.dtype)[0])
    sums = np.empty(-(-x.size // BLOCK))
    sliced(lambda a, b: _squares(x[a:b], sums[a // BLOCK : -(-b // BLOCK)]), x.size)
    square = tree_sum(sums)
    return sqrt(square) if 2.0**-700 <= square < 2.0**800 else definition.norm(x, p)


def tree_sum(x: NDArray[np.float64]) -> float:
    """The sum of numbers that are not negative."""
    while x.size > 1:
        sums = np.empty(-(-x.size // BLOCK))
        _magnitudes(x, sums)
        x = sums
    return float(x[0])


@kernel(*(u(read(u), u) for u in BITS))
def _largest(bits, mask):
    top = bits.dtype.type(0)
    for j in range(bits.size):
        top = max(top, bits.dtype.type(bits[j] & mask))
    return top


@kernel(float64(write(float64)))
def fold(lanes):
    """The sum of 128 lanes, the last seven levels of the tree."""
    for j in range(64):
        lanes[j] += lanes[j + 64]
    for j in range(32):
        lanes[j] += lanes[j + 32]
    for j in range(16):
        lanes[j] += lanes[j + 16]
    for j in range(8):
        lanes[j] += lanes[j + 8]
    for j in range(4):
        lanes[j] += lanes[j + 4]
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])


@kernel(*(float64(read(x), write(float64)) for x in FLOATS))
def block_magnitude(x, lanes):
    """The sum of the magnitudes of a block of 1024."""
    for j in range(128):
        a, b = abs(np.float64(x[j])), abs(np.float64(x[j + 128]))
        c, d = abs(np.float64(x[j + 256])), abs(np.float64(x[j + 384]))
        e, f = abs(np.float64(x[j + 512])), abs(np.float64(x[j + 640]))
        g, h = abs(np.float64(x[j + 768])), abs(np.float64(x[j + 896]))
        lanes[j] = ((a + e) + (c + g)) + ((b + f) + (d + h))
    return fold(lanes)


@kernel(*(float64(read(x), write(float64), write(float64)) for x in FLOATS))
def _block_square(x, squares, lanes):
    """The sum of the squares of a block of 1024.

    It is read from end to end first: memory is fetched ahead in that order, and not in the tree's.
    """
    for j in range(BLOCK):
        y = np.float64(x[j])
        squares[j] = y * y
    for j in range(128):
        a, b, c, d = squares[j], squares[j + 128], squares[j + 256], squares[j + 384]
        e, f, g, h = squares[j + 512], squares[j + 640], squares[j + 768], squares[j + 896]
        lanes[j] = ((a + e) + (c + g)) + ((b + f) + (d + h))
    return fold(lanes)


@kernel(*(void(read(x), write(float64)) for x in FLOATS))
def _squares(x, sums):
    squares, lanes, last = np.empty(BLOCK), np.empty(128), np.zeros(BLOCK, dtype=x.dtype)
    for c in range(x.size // BLOCK):
        sums[c] = _block_square(x[c * BLOCK : (c + 1) * BLOCK], squares, lanes)
    rest = x.size % BLOCK
    if rest:
        last[:rest] = x[x.size - rest :]
        sums[-1] = _block_square(last, squares, lanes)


@kernel(*(void(read(x), write(float64)) for x in FLOATS))
def _magnitudes(x, sums):
    lanes, last = np.empty(128), np.zeros(BLOCK, dtype=x.dtype)
    for c in range(x.size // BLOCK):
        sums[c] = block_magnitude(x[c * BLOCK : (c + 1) * BLOCK], lanes)
    rest = x.size % BLOCK
    if rest:
        last[:rest] = x[x.size - rest :]
        sums[-1] = block_magnitude(last, lanes)
