"""Philox4x32-10, the counter-based generator that every random draw comes from.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).  A block of four
32-bit words is a pure function of a 64-bit key and a 128-bit counter, so any word of any stream can
be computed anywhere, in any order, by any backend, with the same result.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import StreamName, Words

_M0, _M1 = 0xD2511F53, 0xCD9E8D57  # multipliers
_W0, _W1 = 0x9E3779B9, 0xBB67AE85  # key schedule (golden ratio, sqrt(3) - 1)
_LOW = 0xFFFFFFFF
_MULTIPLIERS = np.array([[_M1], [_M0]], dtype=np.uint64)
_MASK, _HALF = np.uint64(_LOW), np.uint64(32)
_SCALAR_BLOCKS = 4  # below this many blocks plain integers beat array calls


def _block(number: int, stream: StreamName) -> tuple[int, int, int, int]:
    """The four words of one block."""
    key, (c1, c2, c3) = stream
    c0 = number
    for k0, k1 in _round_keys(key):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _LOW, (p0 >> 32) ^ c3 ^ k1, p0 & _LOW
    return c0, c1, c2, c3


def _blocks(first: int, last: int, stream: StreamName) -> Words:
    """The words of the blocks ``first`` .. ``last``; both halves of a round are done at once."""
    key, (c1, c2, c3) = stream
    even = np.empty((2, last - first), dtype=np.uint64)  # lanes 2 and 0, the ones that are multiplied
    even[0], even[1] = c2, np.arange(first, last)
    odd: Any = np.array([[c1], [c3]], dtype=np.uint64)  # lanes 1 and 3
    for round_key in _columns(key):
        product = even * _MULTIPLIERS
        high = product >> _HALF
        high ^= odd
        high ^= round_key
        even, odd = high[::-1], product & _MASK
    out = np.empty((last - first, 4), dtype=np.uint32)
    out[:, 0], out[:, 1], out[:, 2], out[:, 3] = even[1], odd[0], even[0], odd[1]
    return out.ravel()


@lru_cache
def _round_keys(key: tuple[int, int]) -> list[tuple[int, int]]:
    """The keys of the ten rounds."""
    k0, k1 = key
    return [((k0 + r * _W0) & _LOW, (k1 + r * _W1) & _LOW) for r in range(10)]


@lru_cache
def _columns(key: tuple[int, int]) -> NDArray[np.uint64]:
    """The round keys as an array of shape (10, 2, 1)."""
    return np.array(_round_keys(key), dtype=np.uint64)[:, :, None]


def words(stream: StreamName, start: int, count: int) -> Words:
    """Words ``start``, .., ``start + count - 1`` of the stream.

    The lowest counter lane numbers the blocks: word w is lane ``w % 4`` of block ``w // 4``.
    """
    first, last = start // 4, -(-(start + count) // 4)
    if last - first <= _SCALAR_BLOCKS:
        lanes = [w for b in range(first, last) for w in _block(b, stream)]
        out = np.array(lanes, dtype=np.uint32)
    else:
        out = _blocks(first, last, stream)
    return out[start - 4 * first : start - 4 * first + count]
