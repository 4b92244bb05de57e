"""Symbols of different widths, compiled: a word of 64 bits is filled and stored, or read, at a time.

Bits that follow others wait for them; so four symbols of up to 16 bits are first made one of up to 64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.coding.bits import Bytes
from mpicomp.kernels.compiled.jit import kernel, read, uint8, uint16, uint64, void, write
from mpicomp.kernels.widths import Widths

_U1, _U6, _U63, _U64 = np.uint64(1), np.uint64(6), np.uint64(63), np.uint64(64)
_U16, _U32, _U48 = np.uint64(16), np.uint64(32), np.uint64(48)
_LOW16 = np.uint64(0xFFFF)


def pack_widths(symbols: NDArray[np.unsignedinteger], widths: Widths, nbytes: int) -> Bytes:
    """Symbol i, below 2^widths[i], for each of them; ``nbytes`` in all."""
    if symbols.dtype == np.uint16:
        fours, of_four = _room(widths.size)
        _join(symbols, widths, fours, of_four)
        symbols, widths = fours, of_four
    words = np.empty(nbytes // 8 + 1, dtype=np.uint64)
    _pack(symbols, widths, words)
    return words.view(np.uint8)[:nbytes]


def unpack_widths(buf: Bytes, widths: Widths, dtype: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """The symbols in ``buf``, whose length is theirs."""
    words = np.zeros(buf.size // 8 + 2, dtype=np.uint64)
    words.view(np.uint8)[: buf.size] = buf
    symbols = np.empty(widths.size, dtype=dtype)
    if dtype is np.uint16:
        fours, of_four = _room(widths.size)
        _sum(widths, of_four)
        _unpack(words, of_four, fours)
        _split(fours, widths, symbols)
    else:
        _unpack(words, widths, symbols)
    return symbols


def _room(count: int) -> tuple[NDArray[np.uint64], Widths]:
    fours = -(-count // 4)
    return np.empty(fours, dtype=np.uint64), np.empty(fours, dtype=np.uint8)


@kernel(void(read(uint64), read(uint8), write(uint64)))
def _pack(symbols, widths, words):
    word, filled, n = np.uint64(0), np.uint64(0), 0
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


@kernel(void(read(uint64), read(uint8), write(uint64)))
def _unpack(words, widths, symbols):
    """Above the bits of a symbol of 64 bits or less, none is set."""
    bit = np.uint64(0)
    for i in range(symbols.size):
        width, at, shift = np.uint64(widths[i]), np.int64(bit >> _U6), bit & _U63
        both = (words[at] >> shift) | ((words[at + 1] << _U1) << (_U63 - shift))
        symbols[i] = both & ~((~np.uint64(0) << _U1) << (width - _U1)) if width else np.uint64(0)
        bit += width


@kernel(void(read(uint16), read(uint8), write(uint64), write(uint8)))
def _join(symbols, widths, fours, of_four):
    """One number of four, the first one lowest, and its width."""
    whole = symbols.size // 4
    four = symbols[: 4 * whole].view(np.uint64)
    for i in range(whole):
        a = np.uint64(widths[4 * i])
        b = a + np.uint64(widths[4 * i + 1])
        c = b + np.uint64(widths[4 * i + 2])
        low = (four[i] & _LOW16) | ((four[i] >> _U16 & _LOW16) << a)
        fours[i] = low | ((four[i] >> _U32 & _LOW16) << b) | ((four[i] >> _U48) << c)
        of_four[i] = c + np.uint64(widths[4 * i + 3])
    if whole < fours.size:
        word, filled = np.uint64(0), np.uint64(0)
        for j in range(4 * whole, symbols.size):
            word |= np.uint64(symbols[j]) << filled
            filled += np.uint64(widths[j])
        fours[whole] = word
        of_four[whole] = filled


@kernel(void(read(uint8), write(uint8)))
def _sum(widths, of_four):
    whole = widths.size // 4
    for i in range(whole):
        of_four[i] = widths[4 * i] + widths[4 * i + 1] + widths[4 * i + 2] + widths[4 * i + 3]
    if whole < of_four.size:
        of_four[whole] = np.sum(widths[4 * whole :])


@kernel(void(read(uint64), read(uint8), write(uint16)))
def _split(fours, widths, symbols):
    """The inverse of ``_join``."""
    whole = symbols.size // 4
    for i in range(whole):
        a = np.uint64(widths[4 * i])
        b = a + np.uint64(widths[4 * i + 1])
        c = b + np.uint64(widths[4 * i + 2])
        four = fours[i]
        symbols[4 * i] = four & ((_U1 << a) - _U1)
        symbols[4 * i + 1] = (four >> a) & ((_U1 << (b - a)) - _U1)
        symbols[4 * i + 2] = (four >> b) & ((_U1 << (c - b)) - _U1)
        symbols[4 * i + 3] = four >> c
    if whole < fours.size:
        word = fours[whole]
        for j in range(4 * whole, symbols.size):
            width = np.uint64(widths[j])
            symbols[j] = word & ((_U1 << width) - _U1)
            word >>= width
