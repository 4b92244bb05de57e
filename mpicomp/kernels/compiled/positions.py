"""Sets of positions, compiled: bits are read by words of 64, or, of short sets, by bytes.

Words are copies, with one to spare; where bytes are read in place, the length is checked first.  Each index
is checked as it is found: no buffer whatever makes a decoder read or write outside.  Encoders check each bit
that they set.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array, Indices
from mpicomp.base.bits import Bytes, expect_length, packed_nbytes
from mpicomp.kernels.compiled.jit import (
    FLOATS,
    boolean,
    float64,
    int64,
    kernel,
    read,
    trailing_zeros,
    uint8,
    uint64,
    void,
    write,
)
from mpicomp.kernels.compiled.vectors import scatter_add
from mpicomp.kernels.definition.positions import elias_fano_nbytes, refused

_FEW = 2048  # indices that are read faster byte by byte, in one call, than in words, which are copied first
_NONE = np.zeros(1, dtype=np.uint64)  # the low parts where there are none


def encode_raw(indices: Indices, width: int) -> Bytes:
    """Symbols of ``width`` bits."""
    words = np.zeros(indices.size * width // 64 + 2, dtype=np.uint64)
    _pack(indices, width, words)
    return words.view(np.uint8)[: packed_nbytes(indices.size, width)]


def decode_raw(buf: Bytes, d: int, k: int, width: int) -> Indices:
    """The indices of ``encode_raw``."""
    expect_length(buf, packed_nbytes(k, width), "packed indices")
    out = np.empty(k, dtype=np.int64)
    if not _unpack(_words(buf), width, d, out):
        raise refused(d, k)
    return out


def encode_bitmap(indices: Indices, d: int) -> Bytes:
    """d bits."""
    return _marked(indices, d, 0, 0)


def decode_bitmap(buf: Bytes, d: int, k: int) -> Indices:
    """The indices of ``encode_bitmap``."""
    return _joined(_NONE, 0, buf, d, 0, d, k)


def encode_elias_fano(indices: Indices, d: int, low: int) -> Bytes:
    """Symbols of ``low`` bits, then the bitmap of the rest."""
    upper = _marked(indices, indices.size + ((d - 1) >> low), low, 1)
    return np.concatenate([encode_raw(indices, low), upper])


def decode_elias_fano(buf: Bytes, d: int, k: int, low: int) -> Indices:
    """The indices of ``encode_elias_fano``."""
    split = packed_nbytes(k, low)
    expect_length(buf[:split], split, "packed indices")
    return _joined(_words(buf[:split]), low, buf[split:], k + ((d - 1) >> low), 1, d, k)


def add_elias_fano(buf: Bytes, out: Array, values: Array, low: int, scale: float) -> None:
    """out += scale * values at the indices of ``encode_elias_fano``; nothing if ``buf`` holds no such set."""
    d, k = out.size, values.size
    if k > _FEW:
        return scatter_add(out, decode_elias_fano(buf, d, k, low), values, scale)
    expect_length(buf, elias_fano_nbytes(d, k, low), "positions")
    if not _add_at(buf, low, k + ((d - 1) >> low), values, np.empty(k, dtype=np.int64), out, scale):
        raise refused(d, k)


def add_elias_fano_stack(codes: Bytes, out: Array, values: Array, k: int, low: int, scale: float) -> int:
    """``add_elias_fano`` of codes that lie end to end, in turn; how many precede the first that is no set."""
    d, nbytes = out.size, elias_fano_nbytes(out.size, k, low)
    expect_length(codes, values.size // k * nbytes, "positions")
    indices = np.empty(k, dtype=np.int64)
    return _add_each_at(codes, nbytes, low, k + ((d - 1) >> low), values, indices, out, scale)


def complement(indices: Indices, d: int) -> Indices:
    """The positions below d that are not among the increasing ``indices``."""
    out = np.empty(d - indices.size, dtype=np.int64)
    if not _complement(indices, out):
        raise _outside(indices)
    return out


def _marked(indices: Indices, nbits: int, low: int, rank: int) -> Bytes:
    out = np.zeros(-(-nbits // 8), dtype=np.uint8)
    if not _mark(indices, low, rank, out):
        raise _outside(indices)
    return out


def _joined(
    lower: NDArray[np.uint64], low: int, upper: Bytes, nbits: int, rank: int, d: int, k: int
) -> Indices:
    expect_length(upper, packed_nbytes(nbits, 1), "a bitmap of positions")
    out = np.empty(k, dtype=np.int64)
    if not _join(lower, low, _words(upper), nbits, rank, d, out):
        raise refused(d, k)
    return out


def _words(buf: Bytes) -> NDArray[np.uint64]:
    """The bytes as words of 64 bits, one word of zeros after them."""
    words = np.zeros(-(-buf.size // 8) + 1, dtype=np.uint64)
    words.view(np.uint8)[: buf.size] = buf
    return words


def _outside(indices: Indices) -> IndexError:
    return IndexError(f"indices from {indices.min()} to {indices.max()} are not below the dimension")


@kernel(void(read(int64), uint64, write(uint64)))
def _pack(indices, width, words):
    """Pack the lowest ``width`` < 64 bits of each index; the output has a word to spare."""
    mask = (np.uint64(1) << width) - np.uint64(1)
    for j in range(indices.size):
        bit = np.uint64(j) * width
        at, shift = bit >> np.uint64(6), bit & np.uint64(63)
        symbol = np.uint64(indices[j]) & mask
        words[at] |= symbol << shift
        words[at + np.uint64(1)] |= (symbol >> np.uint64(1)) >> (np.uint64(63) - shift)


@kernel(uint64(read(uint64), uint64, uint64))
def _symbol(words, width, j):
    """Symbol j of ``width`` < 64 bits; the input has a word to spare."""
    bit = j * width
    at, shift = bit >> np.uint64(6), bit & np.uint64(63)
    word = words[at] >> shift
    word |= (words[at + np.uint64(1)] << np.uint64(1)) << (np.uint64(63) - shift)
    return word & ((np.uint64(1) << width) - np.uint64(1))


@kernel(boolean(read(uint64), uint64, int64, write(int64)))
def _unpack(words, width, d, out):
    last = -1
    for j in range(out.size):
        i = np.int64(_symbol(words, width, np.uint64(j)))
        if not last < i < d:
            return False
        out[j] = last = i
    return True


@kernel(boolean(read(int64), uint64, int64, write(uint8)))
def _mark(indices, low, rank, out):
    """Set bit (i_j >> low) + rank j for each index."""
    for j in range(indices.size):
        bit = (np.uint64(indices[j]) >> low) + np.uint64(rank * j)
        at = bit >> np.uint64(3)
        if at >= np.uint64(out.size):
            return False
        out[at] |= np.uint8(1) << np.uint8(bit & np.uint64(7))
    return True


@kernel(boolean(read(uint64), uint64, read(uint64), int64, int64, int64, write(int64)))
def _join(lower, low, upper, nbits, rank, d, out):
    """The indices behind the set bits among the first ``nbits`` of ``upper``, and their low parts."""
    j, last = 0, -1
    for w in range((nbits + 63) // 64):
        word = upper[w]
        if 64 * (w + 1) > nbits:
            word &= (np.uint64(1) << np.uint64(nbits & 63)) - np.uint64(1)
        while word:
            if j == out.size:
                return False
            bit = 64 * w + np.int64(trailing_zeros(word))
            i = (bit - rank * j) << np.int64(low)
            if low:
                i |= np.int64(_symbol(lower, low, np.uint64(j)))
            if not last < i < d:
                return False
            out[j] = last = i
            j += 1
            word &= word - np.uint64(1)
    return j == out.size


@kernel(
    *(
        boolean(read(uint8), int64, int64, read(x), write(int64), write(o), float64)
        for o in FLOATS
        for x in FLOATS
    )
)
def _add_at(buf, low, nbits, values, indices, out, scale):
    """Decode all ``indices`` first, byte by byte, so that nothing is added if they are no set."""
    k, j, last = values.size, 0, -1
    split, mask = (k * low + 7) >> 3, (1 << low) - 1
    for b in range(split, buf.size):
        bits = np.int64(buf[b])
        if 8 * (b - split + 1) > nbits:
            bits &= (1 << (nbits & 7)) - 1
        while bits:
            if j == k:
                return False
            i = (8 * (b - split) + np.int64(trailing_zeros(np.uint64(bits))) - j) << low
            start = j * low
            shift, rest = start & 7, np.int64(0)
            for at in range(start >> 3, (start + low + 7) >> 3):
                rest |= np.int64(buf[at]) << (8 * (at - (start >> 3)))
            i |= (rest >> shift) & mask
            if not last < i < out.size:
                return False
            indices[j] = last = i
            j += 1
            bits &= bits - 1
    if j != k:
        return False
    for j in range(k):
        out[indices[j]] += scale * values[j]
    return True


@kernel(
    *(
        int64(read(uint8), int64, int64, int64, read(x), write(int64), write(o), float64)
        for o in FLOATS
        for x in FLOATS
    )
)
def _add_each_at(codes, nbytes, low, nbits, values, indices, out, scale):
    """``_add_at`` for each code of ``nbytes``; how many precede the first that is no set."""
    k, count = indices.size, values.size // indices.size
    for j in range(count):
        code, row = codes[j * nbytes : (j + 1) * nbytes], values[j * k : (j + 1) * k]
        if not _add_at(code, low, nbits, row, indices, out, scale):
            return j
    return count


@kernel(boolean(read(int64), write(int64)))
def _complement(indices, out):
    start = count = 0
    for j in range(indices.size):
        if indices[j] - start > out.size - count:
            return False
        for i in range(start, indices[j]):
            out[count] = i
            count += 1
        start = indices[j] + 1
    if start + out.size - count != indices.size + out.size:
        return False
    for i in range(start, indices.size + out.size):
        out[count] = i
        count += 1
    return True
