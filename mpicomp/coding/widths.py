"""Symbols of different widths packed without gaps.

The widths are known to both ends.  Symbol i takes the bits after those of symbol i - 1, least significant
first, as in ``bits``, whose layout this is where all widths are the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.coding.bits import Bytes, expect_length

Widths = NDArray[np.int64]


def pack_widths(symbols: NDArray[np.unsignedinteger], widths: Widths) -> Bytes:
    """Pack symbol i, below 2^widths[i] (width 0 .. 63), into ``widths_nbytes(widths)`` bytes in all."""
    places = np.arange(widths.max(initial=0), dtype=np.uint64)
    bits = (symbols[:, None].astype(np.uint64) >> places & np.uint64(1)).astype(bool)
    return np.packbits(bits[places < widths[:, None]], bitorder="little")


def unpack_widths(buf: Bytes, widths: Widths) -> NDArray[np.uint64]:
    """The symbols in ``buf``.  Raises ``MessageError`` if the length is not theirs."""
    expect_length(buf, widths_nbytes(widths), "packed symbols")
    places = np.arange(widths.max(initial=0), dtype=np.uint64)
    bits = np.zeros((widths.size, places.size), dtype=np.uint64)
    taken = np.unpackbits(buf, count=int(widths.sum()), bitorder="little")
    bits[places < widths[:, None]] = taken
    return np.sum(bits << places, axis=1, dtype=np.uint64)


def widths_nbytes(widths: Widths) -> int:
    """Bytes that symbols of these widths take."""
    return -(-int(widths.sum()) // 8)
