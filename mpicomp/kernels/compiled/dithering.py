"""Levels of a norm, compiled: words, levels and bits of 1024 coordinates at a time."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array, StreamName
from mpicomp.base.bits import Bytes, check_trits, expect_length
from mpicomp.kernels.compiled import packing
from mpicomp.kernels.compiled.jit import (
    FLOATS,
    STREAM,
    float64,
    float_of,
    int64,
    kernel,
    read,
    uint8,
    uint64,
    void,
    write,
)
from mpicomp.kernels.compiled.philox import fill, name
from mpicomp.kernels.compiled.powers import powers
from mpicomp.kernels.definition.dithering import symbol_too_large
from mpicomp.kernels.definition.rounding import lifted
from mpicomp.kernels.threads import sliced

CHUNK = packing.CHUNK
_TRITS = 1280  # coordinates at a time: a multiple of five and of the four words of a block
_MOST, _HALF = np.uint64(2**32 - 1), np.uint64(32)


def dither_pack(x: Array, scale: float, s: int, width: int, stream: StreamName) -> Bytes:
    """Symbols of ``width`` bits: x_j / scale rounded to the multiples of 1/s; scale >= max |x_j|."""
    y, norm = lifted(x, scale)
    words = packing.packed(x.size, width)
    gain, key = s * (2.0**32 / norm) if norm else 0.0, name(stream)
    sliced(lambda a, b: _dither_pack(y[a:b], gain, s, width, key, a // 4, words[a // 64 * width :]), x.size)
    return packing.message(words, x.size, width)


def dither_add(buf: Bytes, out: Array, s: int, width: int, step: float) -> None:
    """out += step times the levels.  ``MessageError``, and nothing added, on a wrong length or symbol."""
    words = _checked(buf, out.size, s, width)
    sliced(lambda a, b: _dither_add(words[a // 64 * width :], out[a:b], s, width, step), out.size)


def ternary_pack(x: Array, scale: float, stream: StreamName) -> Bytes:
    """The levels -1, 0, 1 as trits; scale >= max |x_j|."""
    y, norm = lifted(x, scale)
    trits = np.empty(-(-x.size // 5), dtype=np.uint8)
    gain, key = 2.0**32 / norm if norm else 0.0, name(stream)
    sliced(lambda a, b: _ternary_pack(y[a:b], gain, key, a // 4, trits[a // 5 : -(-b // 5)]), x.size)
    return trits


def ternary_add(buf: Bytes, out: Array, step: float) -> None:
    """out += step times the levels.  ``MessageError``, and nothing added, on a wrong length or byte."""
    expect_length(buf, -(-out.size // 5), "packed trits")
    check_trits(buf)
    sliced(lambda a, b: _ternary_add(buf[a // 5 : -(-b // 5)], out[a:b], step), out.size)


def natural_dither_pack(x: Array, scale: float, s: int, width: int, stream: StreamName) -> Bytes:
    """Symbols of ``width`` bits: level l stands for scale 2^(l - s), 0 for 0; scale >= max |x_j|."""
    y, norm = lifted(x, scale)
    words = packing.packed(x.size, width)
    inverse, key = 1.0 / norm if norm else 0.0, name(stream)
    sliced(
        lambda a, b: _natural_pack(y[a:b], inverse, s, width, key, a // 4, words[a // 64 * width :]), x.size
    )
    return packing.message(words, x.size, width)


def natural_dither_add(buf: Bytes, out: Array, s: int, width: int, step: float) -> None:
    """out += step 2^(|l| - s) sign l.  ``MessageError``, and nothing added, on a wrong length or symbol."""
    words = _checked(buf, out.size, s, width)
    sliced(lambda a, b: _natural_add(words[a // 64 * width :], out[a:b], s, width, step), out.size)


def _checked(buf: Bytes, count: int, s: int, width: int) -> np.ndarray:
    words = packing.padded(buf, width, count)
    top = int(packing.largest(words, width, count))
    if top > 2 * s:
        raise symbol_too_large(top, s)
    return words


@kernel(*(void(read(x), float64, uint64, uint64, STREAM, int64, write(uint64)) for x in FLOATS))
def _dither_pack(x, gain, s, width, stream, first, out):
    draws, symbols = np.empty(CHUNK, dtype=np.uint32), np.empty(CHUNK, dtype=np.uint16)
    work = np.empty(CHUNK // 4, dtype=np.uint64)
    for c in range((x.size + CHUNK - 1) // CHUNK):
        fill(stream, first + c * (CHUNK // 4), draws)
        chunk = x[c * CHUNK : (c + 1) * CHUNK]
        for j in range(chunk.size):
            t = np.uint64(np.ceil(abs(np.float64(chunk[j])) * gain))
            level = min((t + (_MOST - np.uint64(draws[j]))) >> _HALF, s)
            symbols[j] = s - level if chunk[j] < 0 else s + level
        symbols[chunk.size :] = 0
        step = (CHUNK // 64) * np.int64(width)
        packing.pack(symbols, width, work, out[c * step : (c + 1) * step])


@kernel(*(void(read(uint64), write(x), int64, uint64, float64) for x in FLOATS))
def _dither_add(words, out, s, width, scale):
    work, symbols = np.empty(CHUNK // 4, dtype=np.uint64), np.empty(CHUNK, dtype=np.uint16)
    step = (CHUNK // 64) * np.int64(width)
    for c in range((out.size + CHUNK - 1) // CHUNK):
        packing.unpack(words[c * step : (c + 1) * step + 1], width, work, symbols)
        chunk = out[c * CHUNK : (c + 1) * CHUNK]
        for j in range(chunk.size):
            chunk[j] += np.float64(np.int64(symbols[j]) - s) * scale


@kernel(*(void(read(x), float64, STREAM, int64, write(uint8)) for x in FLOATS))
def _ternary_pack(x, gain, stream, first, out):
    draws, trits = np.empty(_TRITS, dtype=np.uint32), np.empty(_TRITS, dtype=np.uint8)
    for c in range((x.size + _TRITS - 1) // _TRITS):
        fill(stream, first + c * (_TRITS // 4), draws)
        chunk = x[c * _TRITS : (c + 1) * _TRITS]
        for j in range(chunk.size):
            t = np.uint64(np.ceil(abs(np.float64(chunk[j])) * gain))
            level = min((t + (_MOST - np.uint64(draws[j]))) >> _HALF, np.uint64(1))
            trits[j] = np.uint64(1) - level if chunk[j] < 0 else np.uint64(1) + level
        trits[chunk.size :] = 0
        bytes_ = out[c * (_TRITS // 5) : (c + 1) * (_TRITS // 5)]
        for b in range(bytes_.size):
            low = trits[5 * b] + 3 * trits[5 * b + 1] + 9 * trits[5 * b + 2]
            bytes_[b] = low + 27 * trits[5 * b + 3] + 81 * trits[5 * b + 4]


@kernel(*(void(read(uint8), write(x), float64) for x in FLOATS))
def _ternary_add(buf, out, step):
    trits = np.empty(_TRITS, dtype=np.uint8)
    for c in range((out.size + _TRITS - 1) // _TRITS):
        bytes_ = buf[c * (_TRITS // 5) : (c + 1) * (_TRITS // 5)]
        for b in range(bytes_.size):
            rest = np.uint32(bytes_[b])
            for i in range(5):
                third = rest // np.uint32(3)
                trits[5 * b + i] = rest - np.uint32(3) * third
                rest = np.uint32(third)
        chunk = out[c * _TRITS : (c + 1) * _TRITS]
        for j in range(chunk.size):
            chunk[j] += np.float64(np.int64(trits[j]) - 1) * step


@kernel(*(void(read(x), float64, int64, uint64, STREAM, int64, write(uint64)) for x in FLOATS))
def _natural_pack(x, inverse, s, width, stream, first, out):
    draws, symbols = np.empty(CHUNK, dtype=np.uint32), np.empty(CHUNK, dtype=np.uint16)
    work, relative = np.empty(CHUNK // 4, dtype=np.uint64), np.zeros(CHUNK)
    for c in range((x.size + CHUNK - 1) // CHUNK):
        fill(stream, first + c * (CHUNK // 4), draws)
        chunk = x[c * CHUNK : (c + 1) * CHUNK]
        for j in range(chunk.size):
            relative[j] = abs(np.float64(chunk[j])) * inverse
        powers(relative, draws, s, s, symbols)
        for j in range(chunk.size):
            level = np.int64(symbols[j])
            symbols[j] = s - level if chunk[j] < 0 else s + level
        symbols[chunk.size :] = 0
        step = (CHUNK // 64) * np.int64(width)
        packing.pack(symbols, width, work, out[c * step : (c + 1) * step])


@kernel(*(void(read(uint64), write(x), int64, uint64, float64) for x in FLOATS))
def _natural_add(words, out, s, width, scale):
    work, symbols = np.empty(CHUNK // 4, dtype=np.uint64), np.empty(CHUNK, dtype=np.uint16)
    step = (CHUNK // 64) * np.int64(width)
    for c in range((out.size + CHUNK - 1) // CHUNK):
        packing.unpack(words[c * step : (c + 1) * step + 1], width, work, symbols)
        chunk = out[c * CHUNK : (c + 1) * CHUNK]
        for j in range(chunk.size):
            level = np.int64(symbols[j]) - s
            power = float_of(np.uint64(abs(level) + (1023 - s)) << np.uint64(52)) if level else 0.0
            chunk[j] += (-power if level < 0 else power) * scale
