"""Index codes: a set of k out of d positions in close to log2 C(d, k) bits.

Four layouts; which one is used follows from (d, k) alone, so nothing announces it:

============  =============================================================================
raw           k symbols of ceil(log2 d) bits
bitmap        d bits
Elias-Fano    k symbols of l low bits, then a bitmap in which bit (i_j >> l) + j is set for the
              j-th smallest index i_j; l is the width that makes the whole smallest
coded bitmap  the bitmap, entropy-coded: ``kernels.coded_bitmaps``
============  =============================================================================

If k > d/2 the complement is coded instead.  Elias-Fano takes about 2 + log2(d/k) bits an index and time in
proportion to k.  For sparse sets it is within a tenth of log2 C(d, k).  From some thousand positions on, the
coded bitmap is within a twentieth of log2 C(d, k).  It takes time in proportion to d, so it is used for sets
of at least d/20 positions.
"""

from __future__ import annotations

from mpicomp import kernels
from mpicomp.base.arrays import Indices
from mpicomp.base.bits import Bytes
from mpicomp.kernels.index_layouts import CODED, layout


def encode_indices(indices: Indices, d: int) -> Bytes:
    """Code strictly increasing ``indices`` below d in ``index_nbytes(d, len(indices))`` bytes."""
    return _backend(indices, d, indices.size).encode_indices(indices, d)


def decode_indices(buf: Bytes, d: int, k: int) -> Indices:
    """The k increasing indices below d in ``buf``.  Raises ``MessageError`` if it holds no such set."""
    return _backend(buf, d, k).decode_indices(buf, d, k)


def _backend(a: Indices | Bytes, d: int, k: int) -> kernels.Kernels:
    """The kernels to use: for a coded bitmap, the compiled ones already from ``LONG_BITMAP`` positions on."""
    coded = layout(d, min(k, d - k))[0] == CODED
    return kernels.backend_for_length(d * kernels.LONG // kernels.LONG_BITMAP if coded else d, a)
