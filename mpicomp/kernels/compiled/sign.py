"""One bit a coordinate, compiled: bits and sum in one pass."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes, packed_nbytes
from mpicomp.kernels.compiled.jit import (
    FLOATS,
    float32,
    float64,
    kernel,
    reaching,
    read,
    uint32,
    uint64,
    void,
    write,
)
from mpicomp.kernels.compiled.packing import padded
from mpicomp.kernels.compiled.reductions import block_magnitude, tree_sum
from mpicomp.kernels.compiled.selection import bits_of
from mpicomp.kernels.definition import reductions as definition
from mpicomp.kernels.definition.reductions import BLOCK
from mpicomp.kernels.threads import sliced


def sign_pack(x: Array) -> tuple[float, Bytes]:
    """|x|_1 / d, which is not finite if an entry is not, and the bits; that of a NaN may be either."""
    blocks = -(-x.size // BLOCK)
    sums, bits = np.empty(blocks), np.empty(BLOCK // 64 * blocks, dtype=np.uint64)
    words, numbers = BLOCK // 64, bits_of(x)

    def pack(a: int, b: int) -> None:
        first, last = a // BLOCK, -(-b // BLOCK)
        _pack(x[a:b], numbers[a:b], sums[first:last], bits[first * words : last * words])

    sliced(pack, x.size)
    total = tree_sum(sums)
    mean = total / x.size if total < 2.0**900 else definition.mean_magnitude(x)
    return mean, bits.view(np.uint8)[: packed_nbytes(x.size, 1)]


def sign_add(buf: Bytes, out: Array, step: float) -> None:
    """out_j += -step where bit j is set, +step elsewhere.  ``MessageError`` on a wrong length."""
    words = padded(buf, 1, out.size)
    sliced(lambda a, b: _add(words[a // 64 :], out[a:b], step), out.size)


@kernel(
    void(read(float32), read(uint32), write(float64), write(uint64)),
    void(read(float64), read(uint64), write(float64), write(uint64)),
)
def _pack(x, numbers, sums, words):
    """``numbers`` are the bits of x.  Unless x_j is NaN, x_j < 0 means bits above those of -0.0."""
    lanes, last = np.empty(128), np.zeros(BLOCK, dtype=x.dtype)
    one = numbers.dtype.type(1)
    negative = (one << numbers.dtype.type(8 * numbers.itemsize - 1)) + one
    for c in range(sums.size):
        block, own = x[c * BLOCK : (c + 1) * BLOCK], numbers[c * BLOCK : (c + 1) * BLOCK]
        if block.size < BLOCK:
            last[: block.size] = block
            block, own = last[:], last.view(numbers.dtype)
        for w in range(BLOCK // 64):  # first, from end to end: memory is fetched ahead in that order
            words[BLOCK // 64 * c + w] = reaching(own, 64 * w, ~numbers.dtype.type(0), negative)
        sums[c] = block_magnitude(block, lanes)


@kernel(*(void(read(uint64), write(x), float64) for x in FLOATS))
def _add(words, out, step):
    for w in range((out.size + 63) // 64):
        chunk = out[64 * w : 64 * w + 64]
        for j in range(chunk.size):
            chunk[j] += -step if (words[w] >> np.uint64(j)) & np.uint64(1) else step
