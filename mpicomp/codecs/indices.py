"""Index codes: a set of k out of d positions in close to log2 C(d, k) bits.

Four layouts; which one is used follows from (d, k) alone, so nothing announces it:

============  =============================================================================
raw           k symbols of ceil(log2 d) bits
bitmap        d bits
Elias-Fano    k symbols of l low bits, then a bitmap in which bit (i_j >> l) + j is set for the
              j-th smallest index i_j; l is the width that makes the whole smallest
coded bitmap  the bitmap, entropy-coded: ``codecs.bitmaps``
============  =============================================================================

If k > d/2 the complement is coded instead.  Elias-Fano takes about 2 + log2(d/k) bits an index, within a
tenth of log2 C(d, k) where the set is sparse, and time in proportion to k; the coded bitmap comes within a
twentieth of it from some thousand positions on and takes time in proportion to d, so it is for sets of at
least d/20.
"""

from __future__ import annotations

from functools import lru_cache

from mpicomp import kernels
from mpicomp.base.bits import Bytes, expect_length, packed_nbytes
from mpicomp.codecs import bitmaps
from mpicomp.kernels.definition.permutation import Indices

_RAW, _BITMAP, _CODED = -1, -2, -3  # layouts; any other number is Elias-Fano with that many low bits
_DENSE = 20  # d/k up to which a bitmap is coded


def index_nbytes(d: int, k: int) -> int:
    """Bytes that the positions of k out of d take."""
    return _layout(d, min(k, d - k))[1]


def encode_indices(indices: Indices, d: int) -> Bytes:
    """Code strictly increasing ``indices`` below d in ``index_nbytes(d, len(indices))`` bytes."""
    if kernels.on_device(indices):
        return kernels.of(indices).encode_indices(indices, d)
    on = kernels.sized(d)
    if 2 * indices.size > d:
        indices = on.complement(indices, d)
    low, _ = _layout(d, indices.size)
    if low == _RAW:
        return on.encode_raw(indices, (d - 1).bit_length())
    if low == _BITMAP:
        return on.encode_bitmap(indices, d)
    if low == _CODED:
        return bitmaps.encode(on.encode_bitmap(indices, d), d, indices.size)
    return on.encode_elias_fano(indices, d, low)


def decode_indices(buf: Bytes, d: int, k: int) -> Indices:
    """The k increasing indices below d in ``buf``.  Raises ``MessageError`` if it holds no such set."""
    if kernels.on_device(buf):
        return kernels.of(buf).decode_indices(buf, d, k)
    expect_length(buf, index_nbytes(d, k), f"{k} of {d} indices")
    on = kernels.sized(d)
    j = min(k, d - k)
    low, _ = _layout(d, j)
    if low == _RAW:
        indices = on.decode_raw(buf, d, j, (d - 1).bit_length())
    elif low == _BITMAP:
        indices = on.decode_bitmap(buf, d, j)
    elif low == _CODED:
        indices = on.decode_bitmap(bitmaps.decode(buf, d, j), d, j)
    else:
        indices = on.decode_elias_fano(buf, d, j, low)
    return on.complement(indices, d) if 2 * k > d else indices


@lru_cache(maxsize=4096)
def _layout(d: int, k: int) -> tuple[int, int]:
    """The smallest layout for k <= d/2 of d positions, and its bytes."""
    if k == 0:
        return _RAW, 0
    sizes = {_RAW: packed_nbytes(k, (d - 1).bit_length()), _BITMAP: -(-d // 8)}
    for low in range(max(d // k, 1).bit_length() + 1):
        sizes[low] = packed_nbytes(k, low) + -(-(k + ((d - 1) >> low)) // 8)
    if _DENSE * k >= d:
        sizes[_CODED] = bitmaps.nbytes(d, k)
    best = min(sizes, key=lambda layout: sizes[layout])
    return best, sizes[best]
