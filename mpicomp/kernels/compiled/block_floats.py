"""Block floats, compiled: each block is read twice, for its largest entry and for its integers.

Integers are read off the bits of doubles, and maxima are of bits, because the compiler makes vectors of these
but not of conversions to 64-bit integers or of maxima of floats.
"""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Float, StreamName
from mpicomp.base.bits import Bytes, expect_length, packed_nbytes
from mpicomp.base.errors import not_finite
from mpicomp.kernels.compiled.jit import (
    FLOATS,
    STREAM,
    bits_of,
    boolean,
    float64,
    float_of,
    int32,
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
_NIBBLE, _FOUR = np.uint8(15), np.uint8(4)
_FINE, _INFINITE, _BEYOND = 0, 1, 2


def block_float_pack(x: Float, bits: int, block: int, stream: StreamName | None) -> Bytes:
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

    worst = set(sliced(pack, x.size))
    if _INFINITE in worst:
        raise not_finite()
    if _BEYOND in worst:
        raise beyond(float(np.abs(x).max())) if np.isfinite(x).all() else not_finite()
    return out


def block_float_add(buf: Bytes, out: Float, bits: int, block: int, scale: float) -> None:
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


@kernel(int64(float64, int64, int64, int64))
def _exponent(top, bits, most, bias):
    """The least e >= -bias with ``top`` <= most 2^e; for a ``top`` that is not finite a large number."""
    e = np.int64(bits_of(top) >> np.uint64(52)) - 1022 - (bits - 1)
    if e < -bias:
        return -bias
    if e > 300:
        return e
    return e + (top > most * float_of(np.uint64(1023 + e) << np.uint64(52)))


@kernel(*(uint64(read(x)) for x in FLOATS))
def _top(chunk):
    """The bits of the largest magnitude as a double; above ``_LARGEST`` if an entry is not finite."""
    top = np.uint64(0)
    for j in range(chunk.size):
        top = max(top, bits_of(np.float64(chunk[j])) & _MAGNITUDE)
    return top


@kernel(*(void(read(x), float64, write(uint8)) for x in FLOATS))
def _nearest(chunk, gain, symbols):
    """The entries times ``gain``, rounded to nearest, ties to even: bytes in two's complement."""
    for j in range(chunk.size):
        symbols[j] = np.uint8(bits_of(chunk[j] * gain + _ROUND))


@kernel(*(void(read(x), float64, read(uint32), write(uint8)) for x in FLOATS))
def _drawn(chunk, gain, words, symbols):
    """The entries times ``gain``/2^32, rounded up or down by a random word each."""
    for j in range(chunk.size):
        t = np.uint64(np.ceil(abs(chunk[j]) * gain))
        level = (t + (_MOST - np.uint64(words[j]))) >> np.uint64(32)
        symbols[j] = np.uint8(-np.int64(level)) if chunk[j] < 0 else np.uint8(level)


@kernel(void(read(uint8), write(uint8)))
def _join(symbols, integers):
    """The low halves of the symbols, two in a byte, the first one in its low half."""
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
    words, pairs, worst = np.empty(CHUNK, dtype=np.uint32), np.empty(block, dtype=np.uint8), _FINE
    for b in range(codes.size):
        start = b * block
        if draws and start % CHUNK == 0:
            fill(stream, first + start // 4, words)
        chunk = x[start : start + block]
        top = _top(chunk)
        if top > _LARGEST:
            return _INFINITE
        e = _exponent(float_of(top), bits, most, bias)
        if e > 255 - bias:
            worst = _BEYOND
            continue
        codes[b] = e + bias
        gain = float_of(np.uint64(1023 - e + (32 if draws else 0)) << np.uint64(52))
        own = integers[start * bits // 8 : ((start + chunk.size) * bits + 7) // 8]
        symbols = own if bits == 8 else pairs[: chunk.size]
        if draws:
            _drawn(chunk, gain, words[start % CHUNK :], symbols)
        else:
            _nearest(chunk, gain, symbols)
        if bits == 4:
            _join(symbols, own)
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
            found += (integers[j] & np.uint8(15)) == 8 or (integers[j] >> np.uint8(4)) == 8
        if count % 2:
            found += (integers[count // 2] & np.uint8(15)) == 8
    return found > 0


@kernel(int32(int32))
def _signed(nibble):
    """The integer with these 4 bits in two's complement."""
    return np.int32((nibble ^ 8) - 8)


@kernel(*(void(read(uint8), read(uint8), write(x), int64, int64, int64, float64) for x in FLOATS))
def _add(codes, integers, out, bits, block, bias, scale):
    for b in range((out.size + block - 1) // block):
        start = b * block
        step = float_of(np.uint64(1023 + np.int64(codes[b]) - bias) << np.uint64(52)) * scale
        chunk = out[start : start + block]
        own = integers[start * bits // 8 :]
        if bits == 8:
            for j in range(chunk.size):
                chunk[j] += np.int32(np.int8(own[j])) * step
        else:
            for j in range(chunk.size // 2):
                pair = np.int32(own[j])
                chunk[2 * j] += _signed(pair & 15) * step
                chunk[2 * j + 1] += _signed(pair >> 4) * step
            if chunk.size % 2:
                chunk[chunk.size - 1] += _signed(np.int32(own[chunk.size // 2]) & 15) * step
