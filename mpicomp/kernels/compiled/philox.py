"""Philox4x32-10, compiled."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import StreamName, Words
from mpicomp.kernels.compiled.jit import STREAM, int64, kernel, uint32, void, write

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)

Key = tuple[int, int, int, int, int]  # the name of a stream, for kernels


def name(stream: StreamName) -> Key:
    """The stream's key and counter lanes as kernels take them."""
    (k0, k1), (l1, l2, l3) = stream
    return k0, k1, l1, l2, l3


def words(stream: StreamName, start: int, count: int) -> Words:
    """Words ``start``, .., ``start + count - 1`` of the stream."""
    first = start // 4
    out = np.empty(-(-(start - 4 * first + count) // 8) * 8, dtype=np.uint32)
    fill(name(stream), first, out)
    return out[start - 4 * first : start - 4 * first + count]


@kernel(void(STREAM, int64, write(uint32)))
def fill(stream, first, out):
    """The words of the blocks from number ``first`` on; ``out`` has a multiple of eight.

    Four lanes of 64 bits for each block: their upper halves may hold anything, because a product takes
    the lower ones alone.  The compiler works on eight blocks at a time; going from two places at once
    hides the time that a product takes.
    """
    k0, k1 = np.uint64(stream[0]), np.uint64(stream[1])
    l1, l2, l3 = np.uint64(stream[2]), np.uint64(stream[3]), np.uint64(stream[4])
    half = out.size // 8
    for b in range(half):
        c0, c1, c2, c3 = np.uint64(first + b), l1, l2, l3
        d0, d1, d2, d3 = np.uint64(first + half + b), l1, l2, l3
        for r in range(10):
            r0, r1 = (k0 + np.uint64(r) * _W0) & _LOW, (k1 + np.uint64(r) * _W1) & _LOW
            p0, p1 = (c0 & _LOW) * _M0, (c2 & _LOW) * _M1
            q0, q1 = (d0 & _LOW) * _M0, (d2 & _LOW) * _M1
            c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ r0, p1, (p0 >> _HALF) ^ c3 ^ r1, p0
            d0, d1, d2, d3 = (q1 >> _HALF) ^ d1 ^ r0, q1, (q0 >> _HALF) ^ d3 ^ r1, q0
        out[4 * b] = c0
        out[4 * b + 1] = c1
        out[4 * b + 2] = c2
        out[4 * b + 3] = c3
        out[4 * (half + b)] = d0
        out[4 * (half + b) + 1] = d1
        out[4 * (half + b) + 2] = d2
        out[4 * (half + b) + 3] = d3
