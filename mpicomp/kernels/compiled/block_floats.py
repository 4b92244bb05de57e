"""Block floats, compiled, 1024 entries at a time: the largest of each block, its code, the integers.

Integers are read off the bits of doubles, and maxima are of bits, because the compiler makes vectors of these
but not of conversions to 64-bit integers or of maxima of floats.
"""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array, StreamName
from mpicomp.base.bits import Bytes, expect_length, packed_nbytes
from mpicomp.base.errors import not_finite
from mpicomp.kernels.compiled.jit import (
    FLOATS,
    STREAM,
    bits_of,
    boolean,
    float64,
    float_of,
    int8,
    int64,
    kernel,
    read,
    uint8,
    uint32,
    uint64,
    void,
    write,
)
from mpicomp.kernels.compiled.packing import CHUNK
from mpicomp.kernels.compiled.philox import fill, name
from mpicomp.kernels.definition.block_floats import beyond, bias, blocks, largest, too_small
from mpicomp.kernels.threads import sliced

_NONE = ((0, 0), (0, 0, 0))  # in the place of a stream where nothing is drawn
_ROUND = np.float64(3 * 2**51)  # adding it rounds to nearest, ties to even, and the low bits are the integer
_MOST = np.uint64(0xFFFFFFFF)
_MAGNITUDE, _LARGEST = np.uint64(0x7FFFFFFFFFFFFFFF), np.uint64(0x7FEFFFFFFFFFFFFF)  # of the bits of a double
_NIBBLE, _FOUR, _EIGHT = np.uint8(15), np.uint8(4), np.uint8(8)
_WORDS = 2.0**32  # of 32 bits
_FINE, _BEYOND, _INFINITE = 0, 1, 2  # the worst is the largest


def block_float_pack(x: Array, bits: int, block: int, stream: StreamName | None) -> Bytes:
    """The codes of the blocks, then the integers of all entries; drawn with a ``stream``, else nearest.

    Raises ``DivergedError`` unless x is finite, and in the range of single precision.
    """
    count = blocks(x.size, block)
    out = np.empty(count + packed_nbytes(x.size, bits), dtype=np.uint8)
    codes, integers = out[:count], out[count:]
    key, draws = name(_NONE if stream is None else stream), stream is not None

    def pack(a: int, b: int) -> int:
        where = slice(a // block, blocks(b, block))
        found: int = _pack(
            x[a:b], bits, block, largest(bits), bias(bits), draws, key, a // 4, codes[where],
            integers[a * bits // 8 : packed_nbytes(b, bits)],
        )  # fmt: skip
        return found

    worst = max(sliced(pack, x.size))
    if worst == _INFINITE:
        raise not_finite()
    if worst == _BEYOND:
        raise beyond(float(np.abs(x).max()))
    return out


def add_block_floats(buf: Bytes, out: Array, bits: int, block: int, scale: float) -> None:
    """out_j += scale m_j 2^e.

    Raises ``MessageError``, and adds nothing, on a wrong length or the integer -2^(bits - 1).
    """
    count = blocks(out.size, block)
    expect_length(buf, count + packed_nbytes(out.size, bits), "block floats")
    codes, integers = buf[:count], buf[count:]
    if _has_smallest(integers, out.size, bits):
        raise too_small(bits)
    sliced(
        lambda a, b: _add(
            codes[a // block :], integers[a * bits // 8 :], out[a:b], bits, block, bias(bits), scale
        ),
        out.size,
    )


@kernel(*(void(read(x), int64, write(uint64)) for x in FLOATS))
def _tops(chunk, block, tops):
    """The bits of the largest magnitude of each block, as a double; above ``_LARGEST`` if it is infinite."""
    for b in range(tops.size):
        own, top = chunk[b * block : (b + 1) * block], np.uint64(0)
        for j in range(own.size):
            top = max(top, bits_of(np.float64(own[j])) & _MAGNITUDE)
        tops[b] = top


@kernel(int64(float64, int64, int64, int64))
def _exponent(top, bits, most, bias):
    """The least e >= -bias with ``top`` <= most 2^e, for a ``top`` that is finite."""
    e = np.int64(bits_of(top) >> np.uint64(52)) - 1022 - (bits - 1)
    if e < -bias:
        return -bias
    if e > 300:
        return e
    return e + (top > most * float_of(np.uint64(1023 + e) << np.uint64(52)))


@kernel(int64(read(uint64), int64, int64, int64, write(uint8), write(float64)))
def _codes(tops, bits, most, bias, codes, gains):
    """Write the code and 2^-e of each block; return the worst fault of a block, or ``_FINE``."""
    worst = _FINE
    for b in range(tops.size):
        if tops[b] > _LARGEST:
            worst = _INFINITE
            continue
        e = _exponent(float_of(tops[b]), bits, most, bias)
        if e > 255 - bias:
            worst = max(worst, _BEYOND)
        else:
            codes[b] = e + bias
            gains[b] = float_of(np.uint64(1023 - e) << np.uint64(52))
    return worst


@kernel(*(void(read(x), int64, read(float64), write(uint8)) for x in FLOATS))
def _nearest(chunk, block, gains, symbols):
    """The entries times their gains, rounded to nearest, ties to even: bytes in two's complement."""
    for b in range(gains.size):
        own, rounded, gain = chunk[b * block : (b + 1) * block], symbols[b * block :], gains[b]
        for j in range(own.size):
            rounded[j] = np.uint8(bits_of(own[j] * gain + _ROUND))


@kernel(*(void(read(x), int64, read(float64), read(uint32), write(uint8)) for x in FLOATS))
def _drawn(chunk, block, gains, words, symbols):
    """The entries times their gains, rounded up or down by a random word each."""
    for b in range(gains.size):
        own, draws, gain = chunk[b * block : (b + 1) * block], words[b * block :], gains[b] * _WORDS
        rounded = symbols[b * block :]
        for j in range(own.size):
            t = np.uint64(np.ceil(abs(own[j]) * gain))
            level = (t + (_MOST - np.uint64(draws[j]))) >> np.uint64(32)
            rounded[j] = np.uint8(-np.int64(level)) if own[j] < 0 else np.uint8(level)


@kernel(void(read(uint8), int64, write(uint8)))
def _join(symbols, bits, integers):
    """The symbols, or their low halves, two in a byte, the first one in its low half."""
    if bits == 8:
        for j in range(symbols.size):
            integers[j] = symbols[j]
        return
    for j in range(symbols.size // 2):
        integers[j] = symbols[2 * j] & _NIBBLE | symbols[2 * j + 1] << _FOUR
    if symbols.size % 2:
        integers[symbols.size // 2] = symbols[symbols.size - 1] & _NIBBLE


@kernel(
    *(
        int64(read(x), int64, int64, int64, int64, boolean, STREAM, int64, write(uint8), write(uint8))
        for x in FLOATS
    )
)
def _pack(x, bits, block, most, bias, draws, stream, first, codes, integers):
    """Pack x; return the worst fault of a block.  ``first`` numbers the first Philox block of its draws."""
    words, symbols = np.empty(CHUNK, dtype=np.uint32), np.empty(CHUNK, dtype=np.uint8)
    tops, gains = np.empty(CHUNK // block, dtype=np.uint64), np.empty(CHUNK // block)
    worst = _FINE
    for start in range(0, x.size, CHUNK):
        chunk, own = x[start : start + CHUNK], codes[start // block : (start + CHUNK) // block]
        n = own.size
        _tops(chunk, block, tops[:n])
        worst = max(worst, _codes(tops[:n], bits, most, bias, own, gains[:n]))
        if worst != _FINE:
            continue  # there is no message, but a later entry may be infinite
        if draws:
            fill(stream, first + start // 4, words)
            _drawn(chunk, block, gains[:n], words, symbols)
        else:
            _nearest(chunk, block, gains[:n], symbols)
        at, end = start * bits // 8, ((start + chunk.size) * bits + 7) // 8
        _join(symbols[: chunk.size], bits, integers[at:end])
    return worst


@kernel(boolean(read(uint8), int64, int64))
def _has_smallest(integers, count, bits):
    """Whether one of the ``count`` integers is -2^(bits - 1)."""
    found = 0
    if bits == 8:
        for j in range(count):
            found += integers[j] == 128
    else:
        for j in range(count // 2):
            found += (integers[j] & _NIBBLE) == 8 or (integers[j] >> _FOUR) == 8
        if count % 2:
            found += (integers[count // 2] & _NIBBLE) == 8
    return found > 0


@kernel(void(read(uint8), int64, write(int8)))
def _split(integers, bits, m):
    """The integers, from their two's complement."""
    if bits == 8:
        for j in range(m.size):
            m[j] = np.int8(integers[j])
        return
    for j in range(m.size // 2):
        m[2 * j] = np.int8((integers[j] & _NIBBLE ^ _EIGHT) - _EIGHT)
        m[2 * j + 1] = np.int8((integers[j] >> _FOUR ^ _EIGHT) - _EIGHT)
    if m.size % 2:
        m[m.size - 1] = np.int8((integers[m.size // 2] & _NIBBLE ^ _EIGHT) - _EIGHT)


@kernel(*(void(read(uint8), read(int8), write(x), int64, int64, float64) for x in FLOATS))
def _add_blocks(codes, m, chunk, block, bias, scale):
    """chunk_j += scale m_j 2^e, with the code of e for each block."""
    for b in range((chunk.size + block - 1) // block):
        step = float_of(np.uint64(1023 + np.int64(codes[b]) - bias) << np.uint64(52)) * scale
        own, integers = chunk[b * block : (b + 1) * block], m[b * block :]
        for j in range(own.size):
            own[j] += integers[j] * step


@kernel(*(void(read(uint8), read(uint8), write(x), int64, int64, int64, float64) for x in FLOATS))
def _add(codes, integers, out, bits, block, bias, scale):
    """``_add_blocks``, 1024 entries at a time."""
    m = np.empty(CHUNK, dtype=np.int8)
    for start in range(0, out.size, CHUNK):
        chunk = out[start : start + CHUNK]
        _split(integers[start * bits // 8 :], bits, m[: chunk.size])
        _add_blocks(codes[start // block :], m, chunk, block, bias, scale)
