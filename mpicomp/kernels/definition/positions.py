"""Layouts of a set of k out of d positions; ``codecs.indices`` says which one is used.

Encoders take k strictly increasing indices below d.  Decoders raise ``MessageError`` if the buffer has not
the layout's length, or does not hold such a set.
"""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array, Indices
from mpicomp.base.bits import Bytes, expect_length, pack, packed_nbytes, unpack
from mpicomp.base.errors import MessageError
from mpicomp.kernels.definition.vectors import scatter_add


def encode_raw(indices: Indices, width: int) -> Bytes:
    """Symbols of ``width`` bits."""
    return pack(indices.astype(np.uint64), width)


def decode_raw(buf: Bytes, d: int, k: int, width: int) -> Indices:
    """The indices of ``encode_raw``."""
    return checked(unpack(buf, k, width).astype(np.int64), d, k)


def encode_bitmap(indices: Indices, d: int) -> Bytes:
    """d bits, of which those at ``indices`` are 1."""
    bits = np.zeros(d, dtype=bool)
    bits[indices] = True
    return np.packbits(bits, bitorder="little")


def decode_bitmap(buf: Bytes, d: int, k: int) -> Indices:
    """The indices of ``encode_bitmap``."""
    return checked(_set_bits(buf, d), d, k)


def encode_elias_fano(indices: Indices, d: int, low: int) -> Bytes:
    """Symbols of ``low`` bits, then the bitmap of the rest."""
    lower = (indices & ((1 << low) - 1)).astype(np.uint64)
    k = indices.size
    upper = encode_bitmap((indices >> low) + np.arange(k), k + ((d - 1) >> low))
    return np.concatenate([pack(lower, low), upper])


def decode_elias_fano(buf: Bytes, d: int, k: int, low: int) -> Indices:
    """The indices of ``encode_elias_fano``."""
    split = packed_nbytes(k, low)
    lower = unpack(buf[:split], k, low).astype(np.int64)
    upper = _set_bits(buf[split:], k + ((d - 1) >> low))
    if upper.size != k:
        raise refused(d, k)
    return checked((upper - np.arange(k)) << low | lower, d, k)


def add_elias_fano(buf: Bytes, out: Array, values: Array, low: int, scale: float) -> None:
    """out += scale * values at the indices of ``encode_elias_fano``; nothing if ``buf`` holds no such set."""
    scatter_add(out, decode_elias_fano(buf, out.size, values.size, low), values, scale)


def add_elias_fano_stack(codes: Bytes, out: Array, values: Array, k: int, low: int, scale: float) -> int:
    """``add_elias_fano`` of codes that lie end to end, in turn; how many precede the first that is no set."""
    count, nbytes = values.size // k, elias_fano_nbytes(out.size, k, low)
    expect_length(codes, count * nbytes, "positions")
    for j, (code, row) in enumerate(zip(codes.reshape(count, nbytes), values.reshape(count, k), strict=True)):
        try:
            add_elias_fano(code, out, row, low, scale)
        except MessageError:
            return j
    return count


def elias_fano_nbytes(d: int, k: int, low: int) -> int:
    """The length of ``encode_elias_fano`` for k indices."""
    return packed_nbytes(k, low) + packed_nbytes(k + ((d - 1) >> low), 1)


def complement(indices: Indices, d: int) -> Indices:
    """The positions below d that are not among the increasing ``indices``."""
    rest = np.ones(d, dtype=bool)
    rest[indices] = False
    return np.flatnonzero(rest)


def refused(d: int, k: int, worker: int | None = None) -> MessageError:
    """The error of bytes, ``worker``'s if it is known, that hold no set of k out of d positions."""
    return MessageError(f"the message does not hold {k} increasing indices below {d}.", worker=worker)


def checked(indices: Indices, d: int, k: int) -> Indices:
    """Return ``indices``.  Raises ``MessageError`` unless they are k increasing numbers below d."""
    if indices.size != k or (k and (indices[-1] >= d or (np.diff(indices) <= 0).any())):
        raise refused(d, k)
    return indices


def _set_bits(buf: Bytes, nbits: int) -> Indices:
    expect_length(buf, packed_nbytes(nbits, 1), "a bitmap of positions")
    # The cast to bool comes first because numpy finds the true entries of a bool array by word.
    return np.flatnonzero(np.unpackbits(buf, count=nbits, bitorder="little").view(bool))
