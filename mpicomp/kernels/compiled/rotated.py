"""Rotated quantisers, compiled: each block is turned in memory of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from mpicomp.base.arrays import Array, StreamName
from mpicomp.base.bits import Bytes, expect_length, packed_nbytes
from mpicomp.kernels.compiled.hadamard import hadamard
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
    uint32,
    void,
    write,
)
from mpicomp.kernels.compiled.packing import pack_eights, unpack_eights
from mpicomp.kernels.compiled.philox import fill, name
from mpicomp.kernels.definition.rotated import LEVELS, beyond, no_scale, padded, rotations
from mpicomp.kernels.threads import sliced

T = TypeVar("T")


def rotated_pack(x: Array, bits: int, block: int, least: bool, stream: StreamName) -> Bytes:
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


def add_rotated(buf: Bytes, out: Array, bits: int, block: int, scale: float, stream: StreamName) -> None:
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


@kernel(int64(int64))
def _log2_of_length(rest):
    """k for the least 2^k that is not below ``rest``."""
    k = 0
    while (1 << k) < rest:
        k += 1
    return k


@kernel(*(void(read(x), read(uint32), write(float64)) for x in FLOATS))
def _flipped(x, words, y):
    """y = D x: bit j of ``words`` is 1 for a minus.  Zeros fill up y."""
    whole = x.size // 32
    for w in range(whole):
        word, a, b = words[w], x[32 * w : 32 * w + 32], y[32 * w : 32 * w + 32]
        for r in range(32):
            v = np.float64(a[r])
            b[r] = -v if (word >> np.uint32(r)) & np.uint32(1) else v
    for j in range(32 * whole, x.size):
        v = np.float64(x[j])
        y[j] = -v if (words[whole] >> np.uint32(j & 31)) & np.uint32(1) else v
    y[x.size :] = 0.0


@kernel(float64(read(float64), read(float64), write(float64)))
def _product(a, b, terms):
    """<a, b> for 2^k entries; three levels of the tree, then one, are one pass."""
    w = a.size // 8
    for j in range(w):
        even = (a[j] * b[j] + a[4 * w + j] * b[4 * w + j]) + (
            a[2 * w + j] * b[2 * w + j] + a[6 * w + j] * b[6 * w + j]
        )
        odd = (a[w + j] * b[w + j] + a[5 * w + j] * b[5 * w + j]) + (
            a[3 * w + j] * b[3 * w + j] + a[7 * w + j] * b[7 * w + j]
        )
        terms[j] = even + odd
    if w == 0:
        w = a.size
        for j in range(w):
            terms[j] = a[j] * b[j]
    while w > 1:
        w //= 2
        for j in range(w):
            terms[j] += terms[w + j]
    return terms[0]


@kernel(float64(write(float64), int64, read(float64), boolean, write(uint8), write(float64), write(float64)))
def _quantised(y, k, levels, least, symbols, c, terms):
    """The scale.  y is overwritten by its magnitudes, c by their levels."""
    n, minus, shift = y.size, np.uint8(levels.size), 2.0 ** (k // 2 - k)
    for j in range(n):
        symbols[j] = minus if y[j] < 0 else np.uint8(0)
        y[j] = abs(y[j])
    if levels.size == 1 and least:
        c[:] = 1.0
        return _product(c, y, terms) / n * shift
    squares = _product(y, y, terms)
    norm = np.sqrt(squares / n)
    for i in range(levels.size - 1):
        bound = (levels[i + 1] + levels[i]) / 2 * norm
        for j in range(n):
            symbols[j] += y[j] > bound
    for j in range(n):
        c[j] = levels[symbols[j] & (minus - np.uint8(1))]
    product = _product(c, y, terms)
    if not least:
        return (squares / product if product > 0 else product) * shift
    energy = _product(c, c, terms)
    c[:] = 1.0
    mass = _product(c, y, terms)
    if (mass * mass) * energy > (product * product) * n:
        product, energy = levels[0] * mass, levels[0] * levels[0] * n
        for j in range(n):
            symbols[j] &= minus
    return product / energy * shift


@kernel(
    *(
        boolean(read(x), int64, int64, read(float64), boolean, STREAM, int64, write(float32), write(uint8))
        for x in FLOATS
    )
)
def _pack(x, bits, block, levels, least, stream, first, scales, out):
    """Whether each scale is finite; ``first`` is the number of the words' first block of four."""
    y, c, terms = np.empty(block), np.empty(block), np.empty(block)
    symbols = np.empty(block, dtype=np.uint8)
    words = np.empty(max(8, block // 32), dtype=np.uint32)
    fine = True
    for b in range(scales.size):
        own = x[b * block : (b + 1) * block]
        k = _log2_of_length(own.size)
        n = 1 << k
        fill(stream, first + b * (block // 128), words)
        _flipped(own, words, y[:n])
        hadamard(y[:n])
        scales[b] = np.float32(_quantised(y[:n], k, levels, least, symbols[:n], c[:n], terms[:n]))
        fine &= scales[b] < np.inf
        symbols[n:8] = 0
        pack_eights(symbols[: max(n, 8)], bits, out[b * block * bits // 8 :][: (n * bits + 7) // 8])
    return fine


@kernel(
    *(
        void(read(float32), read(uint8), write(x), int64, int64, read(float64), float64, STREAM, int64)
        for x in FLOATS
    )
)
def _add(scales, buf, out, bits, block, levels, scale, stream, first):
    c, symbols = np.empty(block), np.empty(block, dtype=np.uint8)
    words = np.empty(max(8, block // 32), dtype=np.uint32)
    signed = np.concatenate((levels, -levels))
    for b in range(scales.size):
        own = out[b * block : (b + 1) * block]
        k = _log2_of_length(own.size)
        n = 1 << k
        fill(stream, first + b * (block // 128), words)
        unpack_eights(buf[b * block * bits // 8 :][: (n * bits + 7) // 8], bits, symbols[: max(n, 8)])
        if bits == 1:
            for j in range(n):  # vectors of comparisons, where a table takes a load for each entry
                c[j] = -1.0 if symbols[j] else 1.0
        else:
            for j in range(n):
                c[j] = signed[symbols[j]]
        hadamard(c[:n])
        gain = np.float64(scales[b]) * 2.0 ** -(k // 2)
        for w in range((own.size + 31) // 32):
            word, a, o = words[w], c[32 * w : 32 * w + 32], own[32 * w : 32 * w + 32]
            for r in range(o.size):
                v = a[r] * gain
                o[r] += (-v if (word >> np.uint32(r)) & np.uint32(1) else v) * scale
