"""A keyed permutation of {0, .., d-1}, evaluated only at the positions that are asked for.

RandK keeps pi(0), .., pi(k-1) and PermK gives worker i the block pi(i d/n), ..: both need k values of
a random permutation, not d.  Up to ``SMALL`` the permutation is the stable argsort of d random words,
uniform up to ties.  Above it is an unbalanced Feistel network on the ceil(log2 d) bits of an index;
an image outside the range is permuted again until it falls inside ("cycle walking"), fewer than two
evaluations a position on average.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Indices, StreamName
from mpicomp.kernels.definition.philox import words

SMALL = 1024  # a Feistel half of five bits and more mixes; below, sorting is cheap and exact
ROUNDS = 8


def permute(stream: StreamName, d: int, start: int, stop: int) -> Indices:
    """pi(start), .., pi(stop-1) for the permutation pi of {0, .., d-1} that the stream names."""
    if d <= SMALL:
        return words(stream, 0, d).argsort(kind="stable")[start:stop]
    keys = words(stream, 0, ROUNDS)
    out = _feistel(np.arange(start, stop, dtype=np.uint64), d, keys)
    outside = np.flatnonzero(out >= d)
    while outside.size:
        out[outside] = _feistel(out[outside], d, keys)
        outside = outside[out[outside] >= d]
    return out.astype(np.int64)


def _feistel(x: NDArray[np.uint64], d: int, keys: NDArray[np.uint32]) -> NDArray[np.uint64]:
    bits = (d - 1).bit_length()
    narrow = bits // 2  # width of the left half; the right one has the odd bit
    wide = bits - narrow
    left = (x >> wide).astype(np.uint32)
    right = (x & ((1 << wide) - 1)).astype(np.uint32)
    for r in range(0, ROUNDS, 2):
        left ^= _mix(right, keys[r], narrow)
        right ^= _mix(left, keys[r + 1], wide)
    return (left.astype(np.uint64) << np.uint64(wide)) | right


def _mix(half: NDArray[np.uint32], key: np.uint32, width: int) -> NDArray[np.uint32]:
    """The round function: two multiply-and-shift steps (MurmurHash3's constants), the top bits kept."""
    h = half ^ key
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0xC2B2AE35)
    return h >> np.uint32(32 - width)
