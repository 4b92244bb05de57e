"""The coder of ``kernels.definition.ans``, compiled: some nanoseconds a byte, as four runs are coded at once.

The decoder looks at a word only while some are left and writes as many bytes as there is room for, so no
message makes it read or write outside.
"""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Frequencies
from mpicomp.base.bits import Bytes
from mpicomp.kernels.compiled.jit import boolean, int64, kernel, read, uint8, uint32, uint64, void, write
from mpicomp.kernels.definition.ans import ROOM, RUN, START, TOTAL, laid_out, unended, words_of_runs

_START = np.uint64(START)
_U16, _U32, _U48 = np.uint64(16), np.uint64(32), np.uint64(48)
_LOW16, _LOW32 = np.uint64(0xFFFF), np.uint64(0xFFFFFFFF)
_AT_ONCE = 4


def ans_encode(symbols: Bytes, frequencies: Frequencies, nbytes: int) -> Bytes:
    """The message for ``symbols``, and zeros after it to fill ``nbytes``.

    Raises ``ValueError`` if they are not enough.
    """
    counts = np.empty(-(-symbols.size // RUN), dtype=np.int64)
    words = np.empty(counts.size * ROOM, dtype=np.uint32)
    total = _encode(symbols, frequencies, words, counts)
    return laid_out(words[:total], counts.tolist(), nbytes)


def ans_decode(buf: Bytes, count: int, frequencies: Frequencies) -> Bytes:
    """The ``count`` bytes that ``buf`` holds.  Raises ``MessageError`` unless it holds just so many."""
    words, ends = words_of_runs(buf, count)
    symbols = np.empty(count, dtype=np.uint8)
    if not _decode(words, ends, frequencies, symbols):
        raise unended()
    return symbols


@kernel(void(read(uint8), read(uint32), read(uint64), int64, write(uint32), write(int64)))
def _encode_runs(symbols, frequencies, below, run, words, counts):
    """Code the runs from number ``run`` on, as many as are coded at once."""
    states, ends = np.empty(_AT_ONCE, dtype=np.uint64), np.empty(_AT_ONCE, dtype=np.int64)
    lengths = np.empty(_AT_ONCE, dtype=np.int64)
    for lane in range(_AT_ONCE):
        states[lane], ends[lane] = _START, (run + lane) * ROOM
        lengths[lane] = min(RUN, symbols.size - (run + lane) * RUN)
    for n in range(lengths[0]):
        for lane in range(_AT_ONCE):
            if n < lengths[lane]:
                symbol = symbols[(run + lane) * RUN + lengths[lane] - 1 - n]
                f, state = np.uint64(frequencies[symbol]), states[lane]
                full = state >= f << _U48
                words[ends[lane]] = state & _LOW32  # to be overwritten if it is not full
                ends[lane] += full
                state = state >> _U32 if full else state
                quotient = state // f
                states[lane] = (quotient << _U16) + (state - quotient * f) + below[symbol]
    for lane in range(_AT_ONCE):
        if lengths[lane] > 0:
            words[ends[lane]] = states[lane] & _LOW32
            words[ends[lane] + 1] = states[lane] >> _U32
            last = 2 if states[lane] > _LOW32 else 1
            counts[run + lane] = ends[lane] + last - (run + lane) * ROOM


@kernel(int64(read(uint8), read(uint32), write(uint32), write(int64)))
def _encode(symbols, frequencies, words, counts):
    """Fill the front of ``words``, and ``counts``, of each run, and return how many words there are."""
    below = np.zeros(256, dtype=np.uint64)
    for symbol in range(255):
        below[symbol + 1] = below[symbol] + np.uint64(frequencies[symbol])
    total = 0
    for run in range(0, counts.size, _AT_ONCE):
        _encode_runs(symbols, frequencies, below, run, words, counts)
        for r in range(run, min(run + _AT_ONCE, counts.size)):
            words[total : total + counts[r]] = words[r * ROOM : r * ROOM + counts[r]]
            total += counts[r]
    return total


@kernel(
    boolean(read(uint32), read(int64), read(uint32), read(uint64), read(uint8), int64, write(uint8)),
)
def _decode_runs(words, ends, frequencies, below, at_slot, run, symbols):
    """Decode the runs from number ``run`` on, as many as are decoded at once; whether all end rightly."""
    states, first = np.zeros(_AT_ONCE, dtype=np.uint64), np.zeros(_AT_ONCE, dtype=np.int64)
    left, lengths = np.zeros(_AT_ONCE, dtype=np.int64), np.zeros(_AT_ONCE, dtype=np.int64)
    for lane in range(min(_AT_ONCE, ends.size - run)):
        first[lane] = ends[run + lane - 1] if run + lane else 0
        left[lane], lengths[lane] = ends[run + lane], min(RUN, symbols.size - (run + lane) * RUN)
        while states[lane] <= _LOW32 and left[lane] > first[lane]:
            left[lane] -= 1
            states[lane] = (states[lane] << _U32) | np.uint64(words[left[lane]])
    for n in range(lengths[0]):
        for lane in range(_AT_ONCE):
            if n < lengths[lane]:
                state = states[lane]
                slot = state & _LOW16
                symbol = at_slot[slot]
                symbols[(run + lane) * RUN + n] = symbol
                state = np.uint64(frequencies[symbol]) * (state >> _U16) + slot - below[symbol]
                if state <= _LOW32 and left[lane] > first[lane]:
                    left[lane] -= 1
                    state = (state << _U32) | np.uint64(words[left[lane]])
                states[lane] = state
    well = True
    for lane in range(min(_AT_ONCE, ends.size - run)):
        well &= left[lane] == first[lane] and states[lane] == _START
    return well


@kernel(boolean(read(uint32), read(int64), read(uint32), write(uint8)))
def _decode(words, ends, frequencies, symbols):
    below, at_slot = np.zeros(256, dtype=np.uint64), np.empty(TOTAL, dtype=np.uint8)
    start = 0
    for symbol in range(256):
        below[symbol] = start
        stop = start + np.int64(frequencies[symbol])
        at_slot[start:stop] = symbol
        start = stop
    well = True
    for run in range(0, ends.size, _AT_ONCE):
        well &= _decode_runs(words, ends, frequencies, below, at_slot, run, symbols)
    return well
