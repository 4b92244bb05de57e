"""Integers of which each has a bound of its own, known to both ends: |level_j| <= s_j.

``fixed``   s_j + level_j, a symbol of ceil(log2(2 s_j + 1)) bits for every coordinate
``sparse``  the number of levels that are not 0 in ``ceil(bits of d / 8)`` bytes, their positions as an index
            set, then for each 2 (|level_j| - 1) + (1 if it is negative), a symbol of ceil(log2(2 s_j)) bits
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.coding.bits import Bytes
from mpicomp.coding.indices import decode_indices, encode_indices, index_nbytes
from mpicomp.coding.widths import Widths, pack_widths, unpack_widths, widths_nbytes
from mpicomp.errors import MessageError

CODES = ("fixed", "sparse")
Levels = NDArray[np.int64]


def levels_nbytes(s: Levels) -> int:
    """Bytes of the fixed code."""
    return widths_nbytes(_bits(2 * s))


def encode_levels(levels: Levels, s: Levels, code: str) -> Bytes:
    """The bytes of ``levels`` in one of the ``CODES``."""
    if code == "fixed":
        return pack_widths((s + levels).astype(np.uint64), _bits(2 * s))
    kept = np.flatnonzero(levels)
    count = np.frombuffer(kept.size.to_bytes(_count_width(s.size), "little"), dtype=np.uint8)
    symbols = 2 * (np.abs(levels[kept]) - 1) + (levels[kept] < 0)
    packed = pack_widths(symbols.astype(np.uint64), _bits(2 * s[kept] - 1))
    return np.concatenate([count, encode_indices(kept, s.size), packed])


def decode_levels(buf: Bytes, s: Levels, code: str) -> Levels:
    """The levels in ``buf``.  Raises ``MessageError`` if it holds none, or one beyond its bound."""
    if code == "fixed":
        levels = unpack_widths(buf, _bits(2 * s)).astype(np.int64) - s
    else:
        head = _count_width(s.size)
        k = int.from_bytes(buf[:head].tobytes(), "little")
        if len(buf) < head or k > s.size:
            raise MessageError(f"a message of {len(buf)} bytes announces {k} of {s.size} levels.")
        split = head + index_nbytes(s.size, k)
        kept = decode_indices(buf[head:split], s.size, k)
        symbols = unpack_widths(buf[split:], _bits(np.maximum(2 * s[kept] - 1, 0))).astype(np.int64)
        levels = np.zeros(s.size, dtype=np.int64)
        levels[kept] = np.where(symbols % 2, -1, 1) * (symbols // 2 + 1)
    if (np.abs(levels) > s).any():
        raise MessageError("a symbol beyond the levels of its coordinate.")
    return levels


def _bits(most: Levels) -> Widths:
    """The number of bits of each of these, 0 for 0."""
    return np.frexp(most.astype(np.float64))[1].astype(np.int64)


def _count_width(d: int) -> int:
    return -(-d.bit_length() // 8)
