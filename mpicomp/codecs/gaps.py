"""Code a set of positions by the gaps between them, as symbols of a small alphabet and remaining bits.

The gap before a position is the number of positions left out since the previous one in the set.  A gap below
16 is its own symbol.  Above, each octave 2^e .. 2^(e+1) has four symbols, one for each value of the two bits
after the leading one.  The remaining e - 2 bits follow uncoded.  If the set is clustered, small symbols are
frequent, and entropy coding makes them short.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Indices, Symbols32, Widths
from mpicomp.base.errors import MessageError

ALPHABET = 256  # more than any gap below 2^63 needs
_EXACT, _FIRST_OCTAVE = 16, 4

Remainders = NDArray[np.uint64]


def symbols_of(indices: Indices) -> tuple[Symbols32, Remainders]:
    """The symbol of the gap before each of the increasing ``indices``, and the remaining bits of the gap."""
    gaps = np.diff(indices, prepend=-1) - 1
    octave = np.maximum(np.frexp(gaps.astype(np.float64))[1].astype(np.int64) - 1, _FIRST_OCTAVE)
    coarse = _EXACT + 4 * (octave - _FIRST_OCTAVE) + (gaps >> (octave - 2)) - 4
    symbols = np.where(gaps < _EXACT, gaps, coarse).astype(np.int32)
    return symbols, (gaps & ((1 << widths_of(symbols).astype(np.int64)) - 1)).astype(np.uint64)


def widths_of(symbols: Symbols32) -> Widths:
    """The number of remaining bits that follow each symbol, uint8."""
    return np.where(symbols < _EXACT, 0, (symbols - _EXACT) // 4 + _FIRST_OCTAVE - 2).astype(np.uint8)


def indices_of(symbols: Symbols32, remainders: Remainders, d: int) -> Indices:
    """Decode the positions from symbols and remaining bits.

    Raises ``MessageError`` if one is not below d.
    """
    if symbols.max(initial=0) >= used(d):
        raise MessageError(f"symbol {symbols.max()} for a gap between positions below {d}.")
    leading = 4 + (symbols.astype(np.int64) - _EXACT) % 4  # int64, and so what is shifted
    gaps = np.where(symbols < _EXACT, symbols, leading << widths_of(symbols)) + remainders.astype(np.int64)
    indices = np.cumsum(gaps + 1) - 1
    # Gaps are below 2 d, so that where the sum leaves 64 bits an index before has left [0, d).
    if ((indices < 0) | (indices >= d)).any():
        raise MessageError(f"gaps that lead to positions not below {d}.")
    return indices


def used(d: int) -> int:
    """The number of symbols used: gaps between positions below d have the symbols 0, .., used(d) - 1."""
    return int(symbols_of(np.array([d - 1]))[0][0]) + 1
