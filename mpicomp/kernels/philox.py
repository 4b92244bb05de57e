"""Philox4x32-10, the counter-based generator that every random draw comes from.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).  A block of four
32-bit words is a pure function of a 64-bit key and a 128-bit counter, so any word of any stream can
be computed anywhere, in any order, by any backend, with the same result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_M0, _M1 = 0xD2511F53, 0xCD9E8D57  # multipliers
_W0, _W1 = 0x9E3779B9, 0xBB67AE85  # key schedule (golden ratio, sqrt(3) - 1)
_LOW = 0xFFFFFFFF
_SCALAR_BLOCKS = 4  # below this many blocks plain integers beat array calls

Words = NDArray[np.uint32]
StreamName = tuple[tuple[int, int], tuple[int, int, int]]  # the key, and the upper lanes of the counter


def _ten_rounds(c0: Any, c1: Any, c2: Any, c3: Any, k0: int, k1: int) -> tuple[Any, Any, Any, Any]:
    """The ten rounds on four 32-bit lanes held in Python ints or in uint64 arrays alike."""
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _LOW, (p0 >> 32) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return c0, c1, c2, c3


def words(stream: StreamName, start: int, count: int) -> Words:
    """Words ``start .. start + count`` of the stream.

    The lowest counter lane numbers the blocks: word w is lane ``w % 4`` of block ``w // 4``.
    """
    first, last = start // 4, -(-(start + count) // 4)
    key, (c1, c2, c3) = stream
    if last - first <= _SCALAR_BLOCKS:
        lanes = [w for b in range(first, last) for w in _ten_rounds(b, c1, c2, c3, *key)]
        out = np.array(lanes, dtype=np.uint32)
    else:
        blocks = np.arange(first, last, dtype=np.uint64)
        lanes1, lanes2, lanes3 = (np.full_like(blocks, c) for c in (c1, c2, c3))
        out = np.empty((last - first, 4), dtype=np.uint32)
        for lane, w in enumerate(_ten_rounds(blocks, lanes1, lanes2, lanes3, *key)):
            out[:, lane] = w
        out = out.ravel()
    return out[start - 4 * first : start - 4 * first + count]
