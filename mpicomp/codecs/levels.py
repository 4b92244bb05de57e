"""Code integers (levels) with a bound for each coordinate that both ends know: |level_j| <= s_j.

A level is given as the symbol s_j + level_j.

``fixed``   these symbols, of ceil(log2(2 s_j + 1)) bits each
``sparse``  the number of levels that are not 0 in ``ceil(bits of d / 8)`` bytes, their positions as an index
            set, then for each 2 (|level_j| - 1) + (1 if it is negative), a symbol of ceil(log2(2 s_j)) bits
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Indices, Symbols, Widths
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MessageError
from mpicomp.codecs.count import count_nbytes, decode_count, encode_count
from mpicomp.codecs.indices import decode_indices, encode_indices
from mpicomp.codecs.widths import pack_widths, unpack_widths, widths_nbytes
from mpicomp.kernels import join
from mpicomp.kernels.index_layouts import index_nbytes

CODES = ("fixed", "sparse")
MOST = 2**15 - 1  # symbols are below 2^16


class Bounds(NamedTuple):
    """The bounds of d levels, with s_j at most ``MOST``.

    most    2 s_j, the largest symbol, shape (d,)
    widths  the bits of each symbol in the fixed code, shape (d,)
    nbytes  the bytes of all symbols in the fixed code
    """

    most: Symbols
    widths: Widths
    nbytes: int


def bounds_of(s: NDArray[np.floating] | NDArray[np.integer]) -> Bounds:
    """The ``Bounds`` of the given s_j, shape (d,)."""
    most = 2 * s.astype(np.uint16)
    widths = _bits(most)
    return Bounds(most, widths, widths_nbytes(widths))


def encode_fixed(symbols: Symbols, bounds: Bounds) -> Bytes:
    """Pack the symbols of all coordinates into ``bounds.nbytes`` bytes."""
    return pack_widths(symbols, bounds.widths, bounds.nbytes)


def decode_fixed(buf: Bytes, bounds: Bounds) -> Symbols:
    """Decode the symbols in ``buf``.

    Raises ``MessageError`` on a wrong length, or a symbol out of bounds.
    """
    symbols = unpack_widths(buf, bounds.widths, bounds.nbytes, np.uint16)
    _expect_within(symbols, bounds.most)
    return symbols


def encode_sparse(symbols: Symbols, bounds: Bounds) -> Bytes:
    """Code the non-zero levels only; the message shrinks with their number."""
    d = symbols.size
    kept = np.flatnonzero(symbols != bounds.most >> 1)
    most = bounds.most[kept].astype(np.int32)
    level, widths = symbols[kept] - most // 2, _bits(most - 1)
    signed = (2 * (np.abs(level) - 1) + (level < 0)).astype(np.uint16)
    return join(
        encode_count(kept.size, d),
        encode_indices(kept, d),
        pack_widths(signed, widths, widths_nbytes(widths)),
    )


def decode_sparse(buf: Bytes, bounds: Bounds) -> tuple[Indices, Symbols]:
    """The coordinates of the non-zero levels in ``buf``, and their symbols.

    Raises ``MessageError`` if ``buf`` holds no such levels, or one out of bounds.
    """
    d = bounds.most.size
    head, k = count_nbytes(d), decode_count(buf, d)
    split = head + index_nbytes(d, k)
    kept = decode_indices(buf[head:split], d, k)
    most = bounds.most[kept].astype(np.int32)
    widths = _bits(np.maximum(most - 1, 0))
    signed = unpack_widths(buf[split:], widths, widths_nbytes(widths), np.uint16)
    _expect_within(signed, most - 1)
    level = np.where(signed % 2, -1, 1) * (signed // 2 + 1)
    return kept, (most // 2 + level).astype(np.uint16)


def _bits(most: NDArray[np.integer]) -> Widths:
    """The bit length of each number in ``most``, all below 2^16; 0 for 0."""
    return np.frexp(most.astype(np.float32))[1].astype(np.uint8)


def _expect_within(symbols: NDArray[np.integer], most: NDArray[np.integer]) -> None:
    beyond = symbols > most
    if beyond.any():
        symbol, bound = (int(a[beyond][0]) for a in (symbols, most))
        raise MessageError(f"a symbol {symbol} where {bound} is the largest that its coordinate has.")
