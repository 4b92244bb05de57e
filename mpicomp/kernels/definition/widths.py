"""Symbols of different widths packed without gaps, as ``codecs.widths``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Widths
from mpicomp.base.bits import Bytes


def pack_widths(symbols: NDArray[np.unsignedinteger], widths: Widths, nbytes: int) -> Bytes:
    """Symbol i, below 2^widths[i], for each of them; ``nbytes`` in all."""
    places = np.arange(widths.max(initial=0), dtype=np.uint64)
    bits = (symbols[:, None].astype(np.uint64) >> places & np.uint64(1)).astype(bool)
    return np.packbits(bits[places < widths[:, None]], bitorder="little")


def unpack_widths(buf: Bytes, widths: Widths, dtype: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """The symbols in ``buf``, whose length is theirs."""
    places = np.arange(widths.max(initial=0), dtype=np.uint64)
    bits = np.zeros((widths.size, places.size), dtype=np.uint64)
    taken = np.unpackbits(buf, count=int(widths.sum()), bitorder="little")
    bits[places < widths[:, None]] = taken
    return np.sum(bits << places, axis=1, dtype=np.uint64).astype(dtype)
