"""Choose the layout of a coded set of k out of d positions; it depends on (d, k) only.

``codecs.indices`` describes the layouts.
"""

from __future__ import annotations

from functools import lru_cache

from mpicomp.base.bits import packed_nbytes
from mpicomp.kernels import coded_bitmaps

RAW, BITMAP, CODED = -1, -2, -3  # layouts; any other number is Elias-Fano with that many low bits
_DENSE = 20  # the largest d/k for which a bitmap is entropy-coded


def index_nbytes(d: int, k: int) -> int:
    """The number of bytes that a set of k out of d positions takes."""
    return layout(d, min(k, d - k))[1]


def elias_fano(d: int, k: int) -> int | None:
    """The number of low bits, if the set itself and not its complement is coded by Elias-Fano; else None."""
    low = layout(d, min(k, d - k))[0]
    return low if low >= 0 and 2 * k <= d else None


@lru_cache(maxsize=4096)
def layout(d: int, k: int) -> tuple[int, int]:
    """(the smallest layout for k <= d/2 of d positions, its number of bytes)."""
    if k == 0:
        return RAW, 0
    sizes = {RAW: packed_nbytes(k, (d - 1).bit_length()), BITMAP: -(-d // 8)}
    for low in range(max(d // k, 1).bit_length() + 1):
        sizes[low] = packed_nbytes(k, low) + -(-(k + ((d - 1) >> low)) // 8)
    if _DENSE * k >= d:
        sizes[CODED] = coded_bitmaps.nbytes(d, k)
    best = min(sizes, key=lambda each: sizes[each])
    return best, sizes[best]
