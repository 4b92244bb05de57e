"""Block floats, compiled: each block is read twice, for its largest entry and for its integers."""

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
    int64,
    kernel,
    read,
    uint8,
    void,
    write,
)
from mpicomp.kernels.compiled.packing import CHUNK
from mpicomp.kernels.compiled.philox import fill, name
from mpicomp.kernels.definition.block_floats import beyond, bias, blocks, largest, too_small
from mpicomp.kernels.threads import sliced

_NONE = ((0, 0), (0, 0, 0))  # in the place of a stream where nothing is drawn
_ROUND = np.float64(3 * 2**51)  # adding it, and subtracting it, rounds to nearest, ties to even
_MOST = np.uint64(0xFFFFFFFF)
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


@kernel(
    *(
        int64(read(x), int64, int64, int64, int64, boolean, STREAM, int64, write(uint8), write(uint8))
        for x in FLOATS
    )
)
def _pack(x, bits, block, most, bias, draws, stream, first, codes, integers):
    words = np.empty(CHUNK, dtype=np.uint32)
    mask, worst = np.int64(2**bits - 1), 0
    for b in range(codes.size):
        start = b * block
        if draws and start % CHUNK == 0:
            fill(stream, first + start // 4, words)
        chunk = x[start : start + block]
        top, finite = 0.0, 0
        for j in range(chunk.size):
            magnitude = abs(np.float64(chunk[j]))
            top = max(top, magnitude)
            finite += magnitude < np.inf
        if finite < chunk.size:
            return 1
        e = _exponent(top, bits, most, bias)
        if e > 255 - bias:
            worst = 2
            continue
        codes[b] = e + bias
        gain = float_of(np.uint64(1023 - e + (32 if draws else 0)) << np.uint64(52))
        for j in range(chunk.size):
            v = np.float64(chunk[j])
            if draws:
                t = np.uint64(np.ceil(abs(v) * gain))
                level = np.int64((t + (_MOST - np.uint64(words[start % CHUNK + j]))) >> np.uint64(32))
                m = -level if v < 0 else level
            else:
                m = np.int64((v * gain + _ROUND) - _ROUND)
            symbol = np.uint8(m & mask)
            if bits == 8:
                integers[start + j] = symbol
            elif j % 2:
                integers[(start + j) // 2] |= np.uint8(symbol << np.uint8(4))
            else:
                integers[(start + j) // 2] = symbol
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


@kernel(*(void(read(uint8), read(uint8), write(x), int64, int64, int64, float64) for x in FLOATS))
def _add(codes, integers, out, bits, block, bias, scale):
    for b in range((out.size + block - 1) // block):
        start = b * block
        step = float_of(np.uint64(1023 + np.int64(codes[b]) - bias) << np.uint64(52)) * scale
        chunk = out[start : start + block]
        for j in range(chunk.size):
            if bits == 8:
                symbol = np.int64(integers[start + j])
            else:
                symbol = np.int64(integers[(start + j) // 2] >> np.uint8(4 * (j % 2))) & 15
            half = np.int64(1) << (bits - 1)
            chunk[j] += np.float64((symbol ^ half) - half) * step
