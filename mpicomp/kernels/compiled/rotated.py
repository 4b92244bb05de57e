"""Rotated quantisers, compiled: each block is turned in memory of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from mpicomp.base.arrays import Float, StreamName
from mpicomp.base.bits import Bytes, expect_length, packed_nbytes
from mpicomp.kernels.compiled.jit import (
    FLOATS,
    STREAM,
    boolean,
    float32,
    float64,
    int64,
    kernel,
    read,
    uint8,
    void,
    write,
)
from mpicomp.kernels.compiled.philox import fill, name
from mpicomp.kernels.definition.rotated import LEVELS, beyond, no_scale, padded, rotations
from mpicomp.kernels.threads import sliced

T = TypeVar("T")


def rotated_pack(x: Float, bits: int, block: int, least: bool, stream: StreamName) -> Bytes:
    """The scales of the blocks as f4, then symbols of ``bits`` bits for their entries.

    Raises ``DivergedError`` unless x is finite and each scale is in the range of f4.
    """
    count = rotations(x.size, block)
    scales = np.empty(count, dtype=np.float32)
    symbols = np.empty(packed_nbytes(padded(x.size, block), bits), dtype=np.uint8)

    def pack(first: int, last: int) -> bool:
        found: bool = _pack(
            x[first * block : last * block], bits, block, LEVELS[bits], least, name(stream),
            first * (block // 128), scales[first:last], symbols[first * block * bits // 8 :],
        )  # fmt: skip
        return found

    if not all(_shared(pack, x.size, block)):
        raise beyond(x)
    return np.concatenate([scales.view(np.uint8), symbols])


def rotated_add(buf: Bytes, out: Float, bits: int, block: int, scale: float, stream: StreamName) -> None:
    """out += scale * D H c times the scale on the wire times 2^-floor(k/2), block by block.

    Raises ``MessageError``, and adds nothing, on a wrong length or a scale that is not finite or negative.
    """
    count = rotations(out.size, block)
    expect_length(buf, 4 * count + packed_nbytes(padded(out.size, block), bits), "rotated levels")
    scales, symbols = buf[: 4 * count].view("<f4"), buf[4 * count :]
    if not ((scales >= 0) & (scales < np.inf)).all():
        raise no_scale(scales)

    def add(first: int, last: int) -> None:
        _add(
            scales[first:last], symbols[first * block * bits // 8 :], out[first * block : last * block],
            bits, block, LEVELS[bits], scale, name(stream), first * (block // 128),
        )  # fmt: skip

    _shared(add, out.size, block)


def _shared(work: Callable[[int, int], T], d: int, block: int) -> list[T]:
    """Call ``work(first, last)`` for ranges of blocks; a block is worked on where its first entry is."""
    return sliced(lambda a, b: work(-(-a // block), -(-b // block)), d)


@kernel(void(write(float64)))
def _hadamard(y):
    """H y in place."""
    h, n = 1, y.size
    while h < n:
        for start in range(0, n, 2 * h):
            a, b = y[start : start + h], y[start + h : start + 2 * h]
            for j in range(h):
                u, v = a[j], b[j]
                a[j] = u + v
                b[j] = u - v
        h *= 2


@kernel(float64(write(float64)))
def _tree_sum(terms):
    """The sum; the terms are overwritten."""
    w = terms.size // 2
    while w > 0:
        for j in range(w):
            terms[j] += terms[w + j]
        w //= 2
    return terms[0]


@kernel(float64(write(float64), int64, read(float64), boolean, write(uint8), write(float64)))
def _quantised(y, k, levels, least, index, terms):
    """The scale; the numbers of the levels' magnitudes go to ``index``."""
    n = y.size
    for j in range(n):
        terms[j] = y[j] * y[j]
    squares = _tree_sum(terms)
    norm = np.sqrt(squares / n)
    for j in range(n):
        index[j] = 0
    for i in range(levels.size - 1):
        bound = (levels[i + 1] + levels[i]) / 2 * norm
        for j in range(n):
            index[j] += abs(y[j]) > bound
    for j in range(n):
        terms[j] = levels[index[j]] * abs(y[j])
    product = _tree_sum(terms)
    shift = 2.0 ** (k // 2 - k)
    if not least:
        return (squares / product if product > 0 else product) * shift
    for j in range(n):
        terms[j] = levels[index[j]] * levels[index[j]]
    energy = _tree_sum(terms)
    if levels.size > 1:
        for j in range(n):
            terms[j] = abs(y[j])
        mass = _tree_sum(terms)
        if (mass * mass) * energy > (product * product) * n:
            product, energy = levels[0] * mass, levels[0] * levels[0] * n
            for j in range(n):
                index[j] = 0
    return product / energy * shift


@kernel(int64(int64))
def _log2_of_length(rest):
    """k for the least 2^k that is not below ``rest``."""
    k = 0
    while (1 << k) < rest:
        k += 1
    return k


@kernel(
    *(
        boolean(read(x), int64, int64, read(float64), boolean, STREAM, int64, write(float32), write(uint8))
        for x in FLOATS
    )
)
def _pack(x, bits, block, levels, least, stream, first, scales, symbols):
    """Whether each scale is finite; ``first`` is the number of the words' first block of four."""
    room, terms = np.empty(block), np.empty(block)
    index = np.empty(block, dtype=np.uint8)
    words = np.empty(max(8, block // 32), dtype=np.uint32)
    fine = True
    for b in range(scales.size):
        own = x[b * block : (b + 1) * block]
        k = _log2_of_length(own.size)
        n = 1 << k
        fill(stream, first + b * (block // 128), words)
        y = room[:n]
        for j in range(n):
            v = np.float64(own[j]) if j < own.size else 0.0
            y[j] = -v if (words[j >> 5] >> np.uint32(j & 31)) & np.uint32(1) else v
        _hadamard(y)
        scales[b] = np.float32(_quantised(y, k, levels, least, index[:n], terms[:n]))
        fine &= scales[b] < np.inf
        held, filled, at = 0, 0, b * block * bits // 8
        for j in range(n):
            symbol = np.int64(index[j]) + (np.int64(y[j] < 0) << (bits - 1))
            held |= symbol << filled
            filled += bits
            if filled >= 8:
                symbols[at] = held & 255
                at += 1
                held >>= 8
                filled -= 8
        if filled > 0:
            symbols[at] = held
    return fine


@kernel(
    *(
        void(read(float32), read(uint8), write(x), int64, int64, read(float64), float64, STREAM, int64)
        for x in FLOATS
    )
)
def _add(scales, symbols, out, bits, block, levels, scale, stream, first):
    room = np.empty(block)
    words = np.empty(max(8, block // 32), dtype=np.uint32)
    half = 1 << (bits - 1)
    for b in range(scales.size):
        own = out[b * block : (b + 1) * block]
        k = _log2_of_length(own.size)
        n = 1 << k
        fill(stream, first + b * (block // 128), words)
        c = room[:n]
        held, filled, at = 0, 0, b * block * bits // 8
        for j in range(n):
            if filled < bits:
                held |= np.int64(symbols[at]) << filled
                at += 1
                filled += 8
            symbol = held & (2 * half - 1)
            held >>= bits
            filled -= bits
            level = levels[symbol & (half - 1)]
            c[j] = -level if symbol >= half else level
        _hadamard(c)
        gain = np.float64(scales[b]) * 2.0 ** -(k // 2)
        for j in range(own.size):
            v = c[j] * gain
            own[j] += (-v if (words[j >> 5] >> np.uint32(j & 31)) & np.uint32(1) else v) * scale
