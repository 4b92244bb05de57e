"""Powers of two, compiled; single precision is rounded on its own bits, as one sum of integers."""

from __future__ import annotations

import numpy as np

from mpicomp.coding.bits import Bytes, packed_nbytes
from mpicomp.errors import not_finite
from mpicomp.kernels.compiled import packing
from mpicomp.kernels.compiled.jit import (
    FLOATS,
    STREAM,
    boolean,
    float64,
    int64,
    kernel,
    read,
    uint8,
    uint32,
    uint64,
    void,
    write,
)
from mpicomp.kernels.compiled.philox import fill, name
from mpicomp.kernels.compiled.powers import powers
from mpicomp.kernels.natural import code_too_large
from mpicomp.kernels.philox import StreamName
from mpicomp.kernels.rounding import Float

CHUNK = packing.CHUNK
_MAGNITUDE, _LARGEST = np.uint32(2**31 - 1), np.uint32(0xFF << 23)


def natural_pack(x: Float, bias: int, width: int, stream: StreamName) -> Bytes:
    """Sign bits, then codes of ``width`` bits: 0 for 0, else exponent + bias, at most 2 bias.

    Raises ``DivergedError`` unless x is finite.
    """
    split = packed_nbytes(x.size, 1)
    signs, codes = packing.packed(x.size, 1), packing.packed(x.size, width)
    if x.dtype == np.float32 and bias == 127:
        finite = _pack_single(x.view(np.uint32), name(stream), signs, codes.view(np.uint8))
    else:
        finite = _pack(x, bias, width, name(stream), signs, codes)
    if not finite:
        raise not_finite()
    out = np.empty(split + packed_nbytes(x.size, width), dtype=np.uint8)
    out[:split] = packing.message(signs, x.size, 1)
    out[split:] = packing.message(codes, x.size, width)
    return out


def natural_add(buf: Bytes, out: Float, bias: int, width: int, scale: float) -> None:
    """out += scale times the powers of two in ``buf``, which has their length.

    Raises ``MessageError``, and adds nothing, if a code is too large.
    """
    split = packed_nbytes(out.size, 1)
    codes = packing.padded(buf[split:], width, out.size)
    top = int(packing.largest(codes, width, out.size))
    if top > 2 * bias:
        raise code_too_large(top, bias)
    _add(packing.padded(buf[:split], 1, out.size), codes, out, bias, width, scale)


@kernel(void(read(uint32), write(uint64)), void(read(uint64), write(uint64)))
def _signs(bits, words):
    """The sign bits of a chunk, those of negative zero and of what is missing left out."""
    one = bits.dtype.type(1)
    negative = one << bits.dtype.type(8 * bits.itemsize - 1)
    for w in range(words.size):
        word = np.uint64(0)
        for j in range(64 * w, min(64 * w + 64, bits.size)):
            word |= np.uint64(bits[j] > negative) << np.uint64(j & 63)
        words[w] = word


@kernel(boolean(read(uint32), STREAM, write(uint64), write(uint8)))
def _pack_single(bits, stream, signs, codes):
    draws, top = np.empty(CHUNK, dtype=np.uint32), np.uint32(0)
    for c in range(signs.size // (CHUNK // 64)):
        fill(stream, c * (CHUNK // 4), draws)
        chunk = bits[c * CHUNK : (c + 1) * CHUNK]
        room = codes[c * CHUNK : (c + 1) * CHUNK]
        for j in range(chunk.size):
            magnitude = np.uint32(chunk[j] & _MAGNITUDE)
            top = max(top, magnitude)
            code = np.uint32(magnitude >> np.uint32(23))
            code = np.uint32(code + (draws[j] < np.uint32(magnitude << np.uint32(9))))
            room[j] = min(code, np.uint32(254))
        _signs(chunk, signs[c * (CHUNK // 64) : (c + 1) * (CHUNK // 64)])
    return top < _LARGEST


@kernel(*(boolean(read(x), int64, uint64, STREAM, write(uint64), write(uint64)) for x in FLOATS))
def _pack(x, bias, width, stream, signs, codes):
    draws, symbols = np.empty(CHUNK, dtype=np.uint32), np.empty(CHUNK, dtype=np.uint16)
    work, wide = np.empty(CHUNK // 4, dtype=np.uint64), np.zeros(CHUNK)
    for c in range((x.size + CHUNK - 1) // CHUNK):
        fill(stream, c * (CHUNK // 4), draws)
        chunk = x[c * CHUNK : (c + 1) * CHUNK]
        wide[chunk.size :] = 0.0
        wide[: chunk.size] = chunk
        _signs(wide.view(np.uint64), signs[c * (CHUNK // 64) : (c + 1) * (CHUNK // 64)])
        finite = True
        for j in range(CHUNK):
            wide[j] = abs(wide[j])
            finite &= wide[j] < np.inf
        if not finite:
            return False
        powers(wide, draws, bias, 2 * bias, symbols)
        step = (CHUNK // 64) * np.int64(width)
        packing.pack(symbols, width, work, codes[c * step : (c + 1) * step])
    return True


@kernel(*(void(read(uint64), read(uint64), write(x), int64, uint64, float64) for x in FLOATS))
def _add(signs, codes, out, bias, width, scale):
    work, symbols = np.empty(CHUNK // 4, dtype=np.uint64), np.empty(CHUNK, dtype=np.uint16)
    power = np.empty(CHUNK, dtype=np.uint64)
    powers_, step = power.view(np.float64), (CHUNK // 64) * np.int64(width)
    for c in range((out.size + CHUNK - 1) // CHUNK):
        packing.unpack(codes[c * step : (c + 1) * step + 1], width, work, symbols)
        for j in range(CHUNK):
            power[j] = np.uint64(np.int64(symbols[j]) + (1023 - bias)) << np.uint64(52)
        chunk = out[c * CHUNK : (c + 1) * CHUNK]
        for j in range(chunk.size):
            magnitude = powers_[j] * scale if symbols[j] else 0.0
            negative = (signs[c * (CHUNK // 64) + (j >> 6)] >> np.uint64(j & 63)) & np.uint64(1)
            chunk[j] += -magnitude if negative else magnitude
