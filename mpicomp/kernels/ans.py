"""Bytes coded under a model that both ends know, by asymmetric numeral systems (Duda, arXiv 1311.2540).

A byte of frequency f in ``TOTAL`` takes log2(TOTAL/f) bits.  The coder is a stack: the encoder goes through
the bytes backwards, so that the decoder, which starts from the end of the message, meets them in order.
Its state holds less than 2^64; what would not fit is moved to the message, 32 bits at a time.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from mpicomp.coding.bits import Bytes
from mpicomp.errors import MessageError

TOTAL = 2**16
START = 2**16  # the encoder's first state, and the decoder's last

Frequencies = NDArray[np.uint32]  # of the 256 bytes: at least 1 each, TOTAL together


def ans_encode(symbols: Bytes, frequencies: Frequencies, nbytes: int) -> Bytes:
    """The words for ``symbols``, and zeros after them to fill ``nbytes``, which must be enough."""
    of, below = frequencies.tolist(), _below(frequencies)
    state, words = START, []
    for symbol in reversed(symbols.tolist()):
        f = of[symbol]
        if state >= f << 48:
            words.append(state & 0xFFFFFFFF)
            state >>= 32
        state = (state // f << 16) + state % f + below[symbol]
    message = np.array([*words, state & 0xFFFFFFFF, state >> 32], dtype="<u4").view(np.uint8)
    return filled(message, nbytes)


def ans_decode(buf: Bytes, count: int, frequencies: Frequencies) -> Bytes:
    """The ``count`` bytes that ``buf`` holds.  Raises ``MessageError`` unless it holds just so many."""
    of, below = frequencies.tolist(), _below(frequencies)
    words = whole_words(buf).tolist()
    state, symbols = 0, bytearray(count)
    for n in range(count):
        while state < 2**32 and words:
            state = state << 32 | words.pop()
        slot = state & 0xFFFF
        symbol = symbols[n] = bisect_right(below, slot) - 1
        state = of[symbol] * (state >> 16) + slot - below[symbol]
    if words or state != START:
        raise unended()
    return np.frombuffer(symbols, dtype=np.uint8)


def filled(message: Bytes, nbytes: int) -> Bytes:
    """The message and zeros after it, or without some of the zeros that it ends with."""
    out = np.zeros(nbytes, dtype=np.uint8)
    out[: message.size] = message[:nbytes]
    if message[nbytes:].any():
        raise ValueError(f"{nbytes} bytes are not enough for these symbols.")
    return out


def whole_words(buf: Bytes) -> NDArray[np.uint32]:
    """The bytes as words of 32 bits, with zeros after them as needed."""
    words = np.zeros(-(-buf.size // 4), dtype="<u4")
    words.view(np.uint8)[: buf.size] = buf
    return words


def unended() -> MessageError:
    """What a decoder raises."""
    return MessageError("a coded bitmap that does not end as it should.")


def _below(frequencies: Frequencies) -> list[int]:
    """The sum of the frequencies before each byte's."""
    return (np.cumsum(frequencies) - frequencies).tolist()
