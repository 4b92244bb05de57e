"""The keyed permutation, compiled: one pass over the positions that are asked for."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Indices, StreamName
from mpicomp.kernels.compiled.jit import int64, kernel, read, uint32, uint64, void, write
from mpicomp.kernels.compiled.philox import words
from mpicomp.kernels.definition.permutation import ROUNDS, SMALL

_MUL0, _MUL1, _SIXTEEN = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35), np.uint32(16)


def permute(stream: StreamName, d: int, start: int, stop: int) -> Indices:
    """pi(start), .., pi(stop-1) for the permutation pi of {0, .., d-1} that the stream names."""
    if d <= SMALL:
        return words(stream, 0, d).argsort(kind="stable")[start:stop]
    out = np.empty(stop - start, dtype=np.int64)
    _walk(words(stream, 0, ROUNDS), d, (d - 1).bit_length(), start, out)
    return out


@kernel(uint64(uint64, read(uint32), uint64, uint64))
def _feistel(x, keys, narrow, wide):
    left = np.uint32(x >> wide)
    right = np.uint32(x & ((np.uint64(1) << wide) - np.uint64(1)))
    cut_narrow, cut_wide = np.uint32(32 - narrow), np.uint32(32 - wide)
    for r in range(0, ROUNDS, 2):
        h = right ^ keys[r]
        h = np.uint32(h * _MUL0)
        h ^= h >> _SIXTEEN
        left ^= np.uint32(h * _MUL1) >> cut_narrow
        h = left ^ keys[r + 1]
        h = np.uint32(h * _MUL0)
        h ^= h >> _SIXTEEN
        right ^= np.uint32(h * _MUL1) >> cut_wide
    return (np.uint64(left) << wide) | np.uint64(right)


@kernel(void(read(uint32), int64, int64, int64, write(int64)))
def _walk(keys, d, bits, start, out):
    narrow = np.uint64(bits // 2)
    wide = np.uint64(bits) - narrow
    for j in range(out.size):
        out[j] = _feistel(np.uint64(start + j), keys, narrow, wide)
    for j in range(out.size):
        while out[j] >= d:
            out[j] = _feistel(np.uint64(out[j]), keys, narrow, wide)
