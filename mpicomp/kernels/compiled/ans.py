"""The coder of ``kernels.ans``, compiled: some ten nanoseconds a byte.

The decoder looks at a word only while some are left and writes as many bytes as there is room for, so no
message makes it read or write outside.
"""

from __future__ import annotations

import numpy as np

from mpicomp.coding.bits import Bytes
from mpicomp.kernels.ans import START, TOTAL, Frequencies, filled, unended, whole_words
from mpicomp.kernels.compiled.jit import boolean, int64, kernel, read, uint8, uint32, write

_START = np.uint64(START)
_U16, _U32, _U48 = np.uint64(16), np.uint64(32), np.uint64(48)
_LOW16, _LOW32 = np.uint64(0xFFFF), np.uint64(0xFFFFFFFF)


def ans_encode(symbols: Bytes, frequencies: Frequencies, nbytes: int) -> Bytes:
    """The words for ``symbols``, and zeros after them to fill ``nbytes``, which must be enough."""
    words = np.empty(symbols.size // 2 + 3, dtype=np.uint32)  # a symbol takes at most 16 bits
    count = _encode(symbols, frequencies, words)
    return filled(words[:count].view(np.uint8), nbytes)


def ans_decode(buf: Bytes, count: int, frequencies: Frequencies) -> Bytes:
    """The ``count`` bytes that ``buf`` holds.  Raises ``MessageError`` unless it holds just so many."""
    symbols = np.empty(count, dtype=np.uint8)
    if not _decode(whole_words(buf), frequencies, symbols):
        raise unended()
    return symbols


@kernel(int64(read(uint8), read(uint32), write(uint32)))
def _encode(symbols, frequencies, words):
    """Fill ``words`` and return how many there are."""
    below = np.zeros(256, dtype=np.uint64)
    for symbol in range(255):
        below[symbol + 1] = below[symbol] + np.uint64(frequencies[symbol])
    state, count = _START, 0
    for n in range(symbols.size):
        symbol = symbols[symbols.size - 1 - n]
        f = np.uint64(frequencies[symbol])
        if state >= f << _U48:
            words[count] = state & _LOW32
            count += 1
            state >>= _U32
        quotient = state // f
        state = (quotient << _U16) + (state - quotient * f) + below[symbol]
    words[count] = state & _LOW32
    words[count + 1] = state >> _U32
    return count + 2


@kernel(boolean(read(uint32), read(uint32), write(uint8)))
def _decode(words, frequencies, symbols):
    below, at_slot = np.zeros(256, dtype=np.uint64), np.empty(TOTAL, dtype=np.uint8)
    start = 0
    for symbol in range(256):
        below[symbol] = start
        stop = start + np.int64(frequencies[symbol])
        at_slot[start:stop] = symbol
        start = stop
    state, left = np.uint64(0), words.size
    for n in range(symbols.size):
        while state <= _LOW32 and left > 0:
            left -= 1
            state = (state << _U32) | np.uint64(words[left])
        slot = state & _LOW16
        symbol = at_slot[slot]
        symbols[n] = symbol
        state = np.uint64(frequencies[symbol]) * (state >> _U16) + slot - below[symbol]
    return left == 0 and state == _START
