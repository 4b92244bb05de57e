"""Bytes coded under a model that both ends know, by asymmetric numeral systems (Duda, arXiv 1311.2540).

A byte of frequency f in ``TOTAL`` takes log2(TOTAL/f) bits.  The coder is a stack: the encoder goes through
the bytes backwards, so that the decoder, which starts from the end of the words, meets them in order.
Its state holds less than 2^64; what would not fit is moved to the words, 32 bits at a time.

Each step waits for the one before.  So the bytes are coded in runs of ``RUN``, each with a state of its
own: a processor codes some at once, a GPU all.  A message has the words of its one run; or, of several, the
number of words of each, 16 bits, filled up to whole words, then their words, one run after the other.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Frequencies, Words
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MessageError

TOTAL = 2**16
START = 2**16  # the encoder's first state, and the decoder's last
RUN = 2**12  # bytes
ROOM = RUN // 2 + 2  # words that are enough for a run: a byte takes at most 16 bits, and a state two words


def ans_encode(symbols: Bytes, frequencies: Frequencies, nbytes: int) -> Bytes:
    """Code the bytes ``symbols``; zeros fill the message up to ``nbytes``.

    Raises ``ValueError`` if ``nbytes`` are not enough.
    """
    runs = [_encode(symbols[a : a + RUN], frequencies) for a in range(0, symbols.size, RUN)]
    return laid_out(np.concatenate(runs), [run.size for run in runs], nbytes)


def ans_decode(buf: Bytes, count: int, frequencies: Frequencies) -> Bytes:
    """Decode ``count`` bytes.  Raises ``MessageError`` unless ``buf`` holds exactly that many."""
    words, ends = words_of_runs(buf, count)
    symbols = np.empty(count, dtype=np.uint8)
    for n, run in enumerate(np.split(words, ends[:-1])):
        symbols[n * RUN : (n + 1) * RUN] = _decode(run, min(RUN, count - n * RUN), frequencies)
    return symbols


def _encode(symbols: Bytes, frequencies: Frequencies) -> Words:
    of, below = frequencies.tolist(), _below(frequencies)
    state, words = START, []
    for symbol in reversed(symbols.tolist()):
        f = of[symbol]
        if state >= f << 48:
            words.append(state & 0xFFFFFFFF)
            state >>= 32
        state = (state // f << 16) + state % f + below[symbol]
    words += [state & 0xFFFFFFFF, state >> 32] if state >> 32 else [state]
    return np.array(words, dtype="<u4")


def _decode(words: Words, count: int, frequencies: Frequencies) -> Bytes:
    of, below = frequencies.tolist(), _below(frequencies)
    stack = words.tolist()
    state, symbols = 0, bytearray(count)
    while state < 2**32 and stack:
        state = state << 32 | stack.pop()
    for n in range(count):
        slot = state & 0xFFFF
        symbol = symbols[n] = bisect_right(below, slot) - 1
        state = of[symbol] * (state >> 16) + slot - below[symbol]
        if state < 2**32 and stack:
            state = state << 32 | stack.pop()
    if stack or state != START:
        raise unended()
    return np.frombuffer(symbols, dtype=np.uint8)


def table_nbytes(count: int) -> int:
    """The size of the table of runs in front of the words, when ``count`` bytes are coded."""
    runs = -(-count // RUN)
    return 4 * -(-runs // 2) if runs > 1 else 0


def laid_out(words: Words, counts: list[int], nbytes: int) -> Bytes:
    """The message of these runs, and zeros after it; of one run, without some of the zeros it ends with.

    Raises ``ValueError`` if the bytes are not enough.
    """
    out, message = np.zeros(nbytes, dtype=np.uint8), words.view(np.uint8)
    if len(counts) > 1:
        table = np.zeros(table_nbytes(len(counts) * RUN) // 2, dtype="<u2")
        table[: len(counts)] = counts
        message = np.concatenate([table.view(np.uint8), message])
    if message[nbytes:].any() if len(counts) == 1 else message.size > nbytes:
        raise ValueError(f"{nbytes} bytes are not enough for these symbols.")
    out[: message.size] = message[:nbytes]
    return out


def words_of_runs(buf: Bytes, count: int) -> tuple[Words, NDArray[np.int64]]:
    """The words of all runs of ``count`` bytes, and the position where the words of each run end.

    A last word may lack zeros; those after the words of several runs are ignored, whatever they are.
    Raises ``MessageError`` if there are fewer words than the message tells of.
    """
    runs, head = -(-count // RUN), table_nbytes(count)
    if buf.size < head:
        raise unended()
    words = np.zeros(-(-(buf.size - head) // 4), dtype="<u4")
    words.view(np.uint8)[: buf.size - head] = buf[head:]
    if runs <= 1:
        return words, np.array([words.size])
    ends = np.cumsum(np.frombuffer(buf[:head].tobytes(), dtype="<u2")[:runs], dtype=np.int64)
    if ends[-1] > words.size:
        raise unended()
    return words[: ends[-1]], ends


def unended() -> MessageError:
    """The error of a message whose words end too early or too late."""
    return MessageError("a coded bitmap that does not end as it should.")


def _below(frequencies: Frequencies) -> list[int]:
    """For each byte, the sum of the frequencies of the smaller bytes."""
    return (np.cumsum(frequencies) - frequencies).tolist()
