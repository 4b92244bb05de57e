"""Index codes: a set of k out of d positions in close to log2 C(d, k) bits.

Four layouts; which one is used follows from (d, k) alone, so nothing announces it:

==========  ===============================================================================
raw         k symbols of ceil(log2 d) bits
bitmap      d bits
Elias-Fano  k symbols of l low bits, then a bitmap in which bit (i_j >> l) + j is set for the
            j-th smallest index i_j; l is the width that makes the whole smallest
by threes   the same with i_j div 3 above and k trits i_j mod 3 below, five a byte; for k near d/4
==========  ===============================================================================

If k > d/2 the complement is coded instead.  Elias-Fano takes about 2 + log2(d/k) bits an index.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mpicomp.coding.bits import Bytes, expect_length, pack, pack_trits, packed_nbytes, unpack, unpack_trits
from mpicomp.errors import MessageError

Indices = NDArray[np.int64]
_RAW, _BITMAP, _THREES = -1, -2, -3  # layouts; any other number is Elias-Fano with that many low bits


def index_nbytes(d: int, k: int) -> int:
    """Bytes that the positions of k out of d take."""
    return _layout(d, min(k, d - k))[1]


def encode_indices(indices: Indices, d: int) -> Bytes:
    """Code strictly increasing ``indices`` below d in ``index_nbytes(d, len(indices))`` bytes."""
    if 2 * indices.size > d:
        indices = _complement(indices, d)
    low, _ = _layout(d, indices.size)
    if low == _RAW:
        return pack(indices.astype(np.uint64), (d - 1).bit_length())
    if low == _BITMAP:
        return _bitmap(indices, d)
    if low == _THREES:
        upper = indices // 3 + np.arange(indices.size)
        bitmap = _bitmap(upper, indices.size + (d - 1) // 3)
        return np.concatenate([pack_trits((indices % 3).astype(np.uint8)), bitmap])
    upper = (indices >> low) + np.arange(indices.size)
    lower = (indices & ((1 << low) - 1)).astype(np.uint64)
    return np.concatenate([pack(lower, low), _bitmap(upper, indices.size + ((d - 1) >> low))])


def decode_indices(buf: Bytes, d: int, k: int) -> Indices:
    """The k increasing indices below d in ``buf``.  Raises ``MessageError`` if it holds no such set."""
    expect_length(buf, index_nbytes(d, k), f"{k} of {d} indices")
    j = min(k, d - k)
    low, _ = _layout(d, j)
    if low == _RAW:
        indices = unpack(buf, j, (d - 1).bit_length()).astype(np.int64)
    elif low == _BITMAP:
        indices = _set_bits(buf, d)
    else:
        threes = low == _THREES
        step = 3 if threes else 1 << low
        split = -(-j // 5) if threes else packed_nbytes(j, low)
        upper = _set_bits(buf[split:], j + (d - 1) // step)
        if upper.size == j:
            lower = unpack_trits(buf[:split], j) if threes else unpack(buf[:split], j, low)
            indices = (upper - np.arange(j)) * step + lower.astype(np.int64)
        else:
            indices = upper  # refused below: the number of set bits is not k
    if indices.size != j or (j and (indices[-1] >= d or (np.diff(indices) <= 0).any())):
        raise MessageError(f"the message does not hold {j} increasing indices below {d}.")
    return _complement(indices, d) if 2 * k > d else indices


@lru_cache(maxsize=4096)
def _layout(d: int, k: int) -> tuple[int, int]:
    """The smallest layout for k <= d/2 of d positions, and its bytes."""
    if k == 0:
        return _RAW, 0
    sizes = {_RAW: packed_nbytes(k, (d - 1).bit_length()), _BITMAP: -(-d // 8)}
    for low in range(max(d // k, 1).bit_length() + 1):
        sizes[low] = packed_nbytes(k, low) + -(-(k + ((d - 1) >> low)) // 8)
    sizes[_THREES] = -(-k // 5) + -(-(k + (d - 1) // 3) // 8)
    best = min(sizes, key=lambda layout: sizes[layout])
    return best, sizes[best]


def _bitmap(positions: Indices, nbits: int) -> Bytes:
    bits = np.zeros(nbits, dtype=bool)
    bits[positions] = True
    return np.packbits(bits, bitorder="little")


def _set_bits(buf: Bytes, nbits: int) -> Indices:
    # The cast to bool comes first because numpy finds the true entries of a bool array by word.
    return np.flatnonzero(np.unpackbits(buf, count=nbits, bitorder="little").view(bool))


def _complement(indices: Indices, d: int) -> Indices:
    rest = np.ones(d, dtype=bool)
    rest[indices] = False
    return np.flatnonzero(rest)
