"""Which layout a set of k out of d positions has on the wire: it follows from (d, k) alone.

The layouts themselves are described in ``codecs.indices``.
"""

from __future__ import annotations

from functools import lru_cache

from mpicomp.base.bits import packed_nbytes
from mpicomp.kernels import coded_bitmaps

RAW, BITMAP, CODED = -1, -2, -3  # layouts; any other number is Elias-Fano with that many low bits
_DENSE = 20  # d/k up to which a bitmap is coded


def index_nbytes(d: int, k: int) -> int:
    """Bytes that the positions of k out of d take."""
    return layout(d, min(k, d - k))[1]


def elias_fano(d: int, k: int) -> int | None:
    """The low bits of an index, if the k positions themselves are coded by Elias-Fano; else None."""
    low = layout(d, min(k, d - k))[0]
    return low if low >= 0 and 2 * k <= d else None


@lru_cache(maxsize=4096)
def layout(d: int, k: int) -> tuple[int, int]:
    """The smallest layout for k <= d/2 of d positions, and its bytes."""
    if k == 0:
        return RAW, 0
    sizes = {RAW: packed_nbytes(k, (d - 1).bit_length()), BITMAP: -(-d // 8)}
    for low in range(max(d // k, 1).bit_length() + 1):
        sizes[low] = packed_nbytes(k, low) + -(-(k + ((d - 1) >> low)) // 8)
    if _DENSE * k >= d:
        sizes[CODED] = coded_bitmaps.nbytes(d, k)
    best = min(sizes, key=lambda each: sizes[each])
    return best, sizes[best]
