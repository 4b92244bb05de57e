"""Symbols of different widths, compiled: a word of 64 bits is filled and stored, or read, at a time.

The place of a symbol depends on those before it; so four symbols of up to 16 bits are first joined to one
of up to 64 bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Widths
from mpicomp.base.bits import Bytes
from mpicomp.kernels.compiled.jit import kernel, read, uint8, uint16, uint64, void, write
from mpicomp.kernels.compiled.packing import CHUNK

_U1, _U6, _U63, _U64 = np.uint64(1), np.uint64(6), np.uint64(63), np.uint64(64)
_U16, _U32, _U48 = np.uint64(16), np.uint64(32), np.uint64(48)
_LOW16 = np.uint64(0xFFFF)


def pack_widths(symbols: NDArray[np.unsignedinteger], widths: Widths, nbytes: int) -> Bytes:
    """Symbol i, below 2^widths[i], for each of them; ``nbytes`` in all."""
    words = np.empty(nbytes // 8 + 1, dtype=np.uint64)
    if symbols.dtype == np.uint16:
        _pack(symbols, widths, words)
    else:
        _append(symbols, widths, np.uint64(0), words)
    return words.view(np.uint8)[:nbytes]


def unpack_widths(buf: Bytes, widths: Widths, dtype: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """The symbols in ``buf``, whose length is theirs."""
    words = np.zeros(buf.size // 8 + 2, dtype=np.uint64)
    words.view(np.uint8)[: buf.size] = buf
    symbols = np.empty(widths.size, dtype=dtype)
    if dtype is np.uint16:
        _unpack(words, widths, symbols)
    else:
        _take(words, widths, np.uint64(0), symbols)
    return symbols


@kernel(uint64(read(uint64), read(uint8), uint64, write(uint64)))
def _append(symbols, widths, bit, words):
    """Append the symbols to the first ``bit`` bits of ``words``; returns the new number of bits."""
    n, filled = np.int64(bit >> _U6), bit & _U63
    word = words[n] if filled else np.uint64(0)
    for i in range(symbols.size):
        symbol, width = symbols[i], np.uint64(widths[i])
        word |= symbol << filled
        filled += width
        if filled >= _U64:
            words[n] = word
            n += 1
            filled -= _U64
            word = (symbol >> _U1) >> (width - filled - _U1)  # by up to 64 bits
    words[n] = word
    return (np.uint64(n) << _U6) + filled


@kernel(uint64(read(uint64), read(uint8), uint64, write(uint64)))
def _take(words, widths, bit, symbols):
    """Read the symbols from bit number ``bit`` on; returns the bit after them."""
    for i in range(symbols.size):
        width, at, shift = np.uint64(widths[i]), np.int64(bit >> _U6), bit & _U63
        both = (words[at] >> shift) | ((words[at + 1] << _U1) << (_U63 - shift))
        symbols[i] = both & ~((~np.uint64(0) << _U1) << (width - _U1)) if width else np.uint64(0)
        bit += width
    return bit


@kernel(void(read(uint16), read(uint8), write(uint64), write(uint8)))
def _join(symbols, widths, fours, of_four):
    """Four symbols joined to one number, the first one lowest, and its width."""
    four = symbols.view(np.uint64)
    for i in range(four.size):
        a = np.uint64(widths[4 * i])
        b = a + np.uint64(widths[4 * i + 1])
        c = b + np.uint64(widths[4 * i + 2])
        low = (four[i] & _LOW16) | ((four[i] >> _U16 & _LOW16) << a)
        fours[i] = low | ((four[i] >> _U32 & _LOW16) << b) | ((four[i] >> _U48) << c)
        of_four[i] = c + np.uint64(widths[4 * i + 3])


@kernel(void(read(uint8), write(uint8)))
def _sum(widths, of_four):
    for i in range(of_four.size):
        of_four[i] = widths[4 * i] + widths[4 * i + 1] + widths[4 * i + 2] + widths[4 * i + 3]


@kernel(void(read(uint64), read(uint8), write(uint16)))
def _split(fours, widths, symbols):
    """The inverse of ``_join``."""
    for i in range(symbols.size // 4):
        a = np.uint64(widths[4 * i])
        b = a + np.uint64(widths[4 * i + 1])
        c = b + np.uint64(widths[4 * i + 2])
        symbols[4 * i] = fours[i] & ((_U1 << a) - _U1)
        symbols[4 * i + 1] = (fours[i] >> a) & ((_U1 << (b - a)) - _U1)
        symbols[4 * i + 2] = (fours[i] >> b) & ((_U1 << (c - b)) - _U1)
        symbols[4 * i + 3] = fours[i] >> c


@kernel(void(read(uint16), read(uint8), write(uint64)))
def _pack(symbols, widths, words):
    fours, of_four = np.empty(CHUNK // 4, dtype=np.uint64), np.empty(CHUNK // 4, dtype=np.uint8)
    bit, whole = np.uint64(0), symbols.size // CHUNK * CHUNK
    for a in range(0, whole, CHUNK):
        _join(symbols[a : a + CHUNK], widths[a : a + CHUNK], fours, of_four)
        bit = _append(fours, of_four, bit, words)
    _append(symbols[whole:].astype(np.uint64), widths[whole:], bit, words)


@kernel(void(read(uint64), read(uint8), write(uint16)))
def _unpack(words, widths, symbols):
    fours, of_four = np.empty(CHUNK // 4, dtype=np.uint64), np.empty(CHUNK // 4, dtype=np.uint8)
    bit, whole = np.uint64(0), symbols.size // CHUNK * CHUNK
    for a in range(0, whole, CHUNK):
        _sum(widths[a : a + CHUNK], of_four)
        bit = _take(words, of_four, bit, fours)
        _split(fours, widths[a : a + CHUNK], symbols[a : a + CHUNK])
    rest = np.empty(symbols.size - whole, dtype=np.uint64)
    _take(words, widths[whole:], bit, rest)
    symbols[whole:] = rest
