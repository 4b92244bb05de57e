"""Powers of two, compiled; single precision is rounded on its own bits, as one sum of integers."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array, StreamName
from mpicomp.base.bits import Bytes, expect_length, packed_nbytes
from mpicomp.kernels.compiled import packing
from mpicomp.kernels.compiled.jit import (
    FLOATS,
    STREAM,
    boolean,
    float64,
    float_of,
    int64,
    kernel,
    reaching,
    read,
    uint8,
    uint32,
    uint64,
    void,
    write,
)
from mpicomp.kernels.compiled.philox import fill, name
from mpicomp.kernels.compiled.powers import powers
from mpicomp.kernels.definition.natural import beyond, code_too_large, limit
from mpicomp.kernels.threads import sliced

CHUNK = packing.CHUNK
_MAGNITUDE, _INFINITE = np.uint32(2**31 - 1), np.uint32(0xFF << 23)


def natural_pack(x: Array, bias: int, width: int, stream: StreamName) -> Bytes:
    """Sign bits, then codes of ``width`` bits: 0 for 0, else exponent + bias, at most 2 bias.

    Raises ``DivergedError`` unless x is finite, with all |x_j| below ``limit(bias)``.
    """
    split = packed_nbytes(x.size, 1)
    signs, key = packing.packed(x.size, 1), name(stream)
    if x.dtype == np.float32 and bias == 127:
        room = np.empty(split + 8 * packing.packed(x.size, 8).size, dtype=np.uint8)
        bits, bytes_ = x.view(np.uint32), room[split:]
        held = sliced(
            lambda a, b: _pack_single(bits[a:b], key, a // 4, signs[_words(a, b)], bytes_[a:]), x.size
        )
        out = room[: split + x.size]
    else:
        codes = packing.packed(x.size, width)
        held = sliced(
            lambda a, b: _pack(
                x[a:b], bias, limit(bias), width, key, a // 4, signs[_words(a, b)], codes[a // 64 * width :]
            ),
            x.size,
        )
        out = np.empty(split + packed_nbytes(x.size, width), dtype=np.uint8)
        out[split:] = packing.message(codes, x.size, width)
    if not all(held):
        raise beyond(x)
    out[:split] = packing.message(signs, x.size, 1)
    return out


def natural_add(buf: Bytes, out: Array, bias: int, width: int, scale: float) -> None:
    """out += scale times the powers of two in ``buf``.

    Raises ``MessageError``, and adds nothing, on a wrong length or a code that is too large.
    """
    split = packed_nbytes(out.size, 1)
    expect_length(buf, split + packed_nbytes(out.size, width), "signs and exponents")
    signs = packing.padded(buf[:split], 1, out.size)
    if width == 8:
        top = int(buf[split:].max(initial=0))
    else:
        codes = packing.padded(buf[split:], width, out.size)
        top = int(packing.largest(codes, width, out.size))
    if top > 2 * bias:
        raise code_too_large(top, bias)
    if width == 8:
        bytes_ = buf[split:]
        sliced(lambda a, b: _add_bytes(signs[a // 64 :], bytes_[a:b], out[a:b], bias, scale), out.size)
    else:
        sliced(
            lambda a, b: _add(signs[a // 64 :], codes[a // 64 * width :], out[a:b], bias, width, scale),
            out.size,
        )


def _words(start: int, stop: int) -> slice:
    """Room for the sign bits of whole chunks, in 64-bit words."""
    return slice(start // 64, -(-stop // CHUNK) * (CHUNK // 64))


@kernel(void(read(uint32), write(uint64)), void(read(uint64), write(uint64)))
def _signs(bits, words):
    """The sign bits of a chunk; negative zero counts as positive."""
    one = bits.dtype.type(1)
    negative = (one << bits.dtype.type(8 * bits.itemsize - 1)) + one
    for w in range(CHUNK // 64):
        words[w] = reaching(bits, 64 * w, ~bits.dtype.type(0), negative)


@kernel(boolean(read(uint32), STREAM, int64, write(uint64), write(uint8)))
def _pack_single(bits, stream, first, signs, codes):
    draws, last = np.empty(CHUNK, dtype=np.uint32), np.zeros(CHUNK, dtype=np.uint32)
    top = np.uint32(0)
    for c in range(signs.size // (CHUNK // 64)):
        fill(stream, first + c * (CHUNK // 4), draws)
        chunk = bits[c * CHUNK : (c + 1) * CHUNK]
        if chunk.size < CHUNK:
            last[: chunk.size] = chunk
            chunk = last[:]
        room = codes[c * CHUNK : (c + 1) * CHUNK]
        for j in range(CHUNK):
            magnitude = np.uint32(chunk[j] & _MAGNITUDE)
            top = max(top, magnitude)
            up = draws[j] < np.uint32(magnitude << np.uint32(9))
            room[j] = min(np.uint32((magnitude >> np.uint32(23)) + up), np.uint32(254))
        _signs(chunk, signs[c * (CHUNK // 64) : (c + 1) * (CHUNK // 64)])
    return top < _INFINITE


@kernel(
    *(boolean(read(x), int64, float64, uint64, STREAM, int64, write(uint64), write(uint64)) for x in FLOATS)
)
def _pack(x, bias, limit, width, stream, first, signs, codes):
    draws, symbols = np.empty(CHUNK, dtype=np.uint32), np.empty(CHUNK, dtype=np.uint16)
    work, wide = np.empty(CHUNK // 4, dtype=np.uint64), np.zeros(CHUNK)
    step = (CHUNK // 64) * np.int64(width)
    for c in range(signs.size // (CHUNK // 64)):
        fill(stream, first + c * (CHUNK // 4), draws)
        chunk = x[c * CHUNK : (c + 1) * CHUNK]
        wide[chunk.size :] = 0.0
        for j in range(chunk.size):
            wide[j] = chunk[j]
        _signs(wide.view(np.uint64), signs[c * (CHUNK // 64) : (c + 1) * (CHUNK // 64)])
        held = 0
        for j in range(CHUNK):
            wide[j] = abs(wide[j])
            held += wide[j] < limit
        if held < CHUNK:
            return False
        powers(wide, draws, bias, 2 * bias, symbols)
        packing.pack(symbols, width, work, codes[c * step : (c + 1) * step])
    return True


@kernel(*(void(read(uint64), read(uint8), write(x), int64, float64) for x in FLOATS))
def _add_bytes(signs, codes, out, bias, scale):
    for w in range((out.size + 63) // 64):
        chunk = out[64 * w : 64 * w + 64]
        code = codes[64 * w : 64 * w + 64]
        for j in range(chunk.size):
            power = float_of(np.uint64(np.int64(code[j]) + (1023 - bias)) << np.uint64(52))
            magnitude = power * scale if code[j] else 0.0
            chunk[j] += -magnitude if (signs[w] >> np.uint64(j)) & np.uint64(1) else magnitude


@kernel(*(void(read(uint64), read(uint64), write(x), int64, uint64, float64) for x in FLOATS))
def _add(signs, codes, out, bias, width, scale):
    work, symbols = np.empty(CHUNK // 4, dtype=np.uint64), np.empty(CHUNK, dtype=np.uint16)
    step = (CHUNK // 64) * np.int64(width)
    for c in range((out.size + CHUNK - 1) // CHUNK):
        packing.unpack(codes[c * step : (c + 1) * step + 1], width, work, symbols)
        chunk = out[c * CHUNK : (c + 1) * CHUNK]
        for j in range(chunk.size):
            power = float_of(np.uint64(np.int64(symbols[j]) + (1023 - bias)) << np.uint64(52))
            magnitude = power * scale if symbols[j] else 0.0
            word = signs[c * (CHUNK // 64) + (j >> 6)]
            chunk[j] += -magnitude if (word >> np.uint64(j & 63)) & np.uint64(1) else magnitude
