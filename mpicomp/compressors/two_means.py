"""Signs with two magnitudes: 1.72 bits a coordinate."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import ClassVar

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array, Indices
from mpicomp.base.bits import Bytes, expect_length
from mpicomp.codecs.indices import decode_indices, encode_indices
from mpicomp.compressors.base import Contractive
from mpicomp.compressors.sign import Sign
from mpicomp.compressors.support.scale import check_scale_format
from mpicomp.compressors.support.sparsifier import gather, scatter_add
from mpicomp.kernels import join
from mpicomp.kernels.index_layouts import index_nbytes
from mpicomp.keys import Key

# The better of the two groups of exponential magnitudes, and of what exceeds any threshold in such ones, has
# 20.3 % of them: the threshold t of Lloyd's quantiser solves t = 2 - t / (e^t - 1), and the share is e^-t.
_SHARE = 5


@dataclass(frozen=True)
class TwoMeans(Contractive):
    """C(x)_j = m_U sign(x_j) for the set U of the b = ceil(d/5) largest |x_j|, m_V sign(x_j) for the rest V.

    m_U and m_V are the mean magnitudes: |C(x) - x|^2 = |x|^2 - |x_U|_1^2 / b - |x_V|_1^2 / (d - b) exactly.
    alpha = 1/b for d > 5, attained if x has a single non-zero entry, and 2 / (1 + sqrt(d)) for d <= 5.

    A fifth is the best share if the magnitudes are exponentially distributed, or are the part of such
    magnitudes above a threshold, as after ``TopK``.  The two means then keep 65 % of the variance of the
    magnitudes around their mean; ``Sign`` keeps none of it.

    Proof of alpha: let m be the least magnitude in U and s = |x_V|_1, so |x_V|^2 <= m s.  Then
    |x_U|_1^2 - |x_U|^2 >= b (b - 1) m^2, and b s^2 / (d - b) - m s >= -m^2 (d - b) / (4b).  The sum of both
    is not negative for b >= 2, since d - b <= 4b, so b (|x_U|_1^2 / b + |x_V|_1^2 / (d - b)) >= |x|^2.  For
    b = 1 the ratio (m^2 + s^2 / (d - 1)) / (m^2 + m s) is least at s = m (sqrt(d) - 1).

    Wire: the index code of (d, b), then the messages of ``Sign`` for x_U and, if there is one, for x_V.

    values  the format of the two magnitudes: "f4" or "f8"
    """

    paper: ClassVar[str] = (
        "Lloyd, Least squares quantization in PCM (1982); two bits a value after TopK: SparseLoCo, "
        "arXiv 2508.15706, as recalled"
    )

    values: str = "f4"

    def __post_init__(self) -> None:
        check_scale_format(self.values)

    def compress(self, x: Array, key: Key) -> Bytes:
        large = kernels.backend_for(x).top_k(x, _large(x.size))
        groups = [group for group in (large, _others(x, large)) if group.size]
        signs = [Sign(self.values).compress(gather(x, (group,)), key) for group in groups]
        return join(encode_indices(large, x.size), *signs)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        expect_length(buf, self.nbytes(out.size), self)
        start = index_nbytes(out.size, _large(out.size))
        large = decode_indices(buf[:start], out.size, _large(out.size))
        groups = [group for group in (large, _others(out, large)) if group.size]
        decoded = []  # of all groups before any is added: the second may be refused
        for group in groups:
            stop = start + Sign(self.values).nbytes(group.size)
            decoded.append(Sign(self.values).decompress(buf[start:stop], group.size, key))
            start = stop
        for group, values in zip(groups, decoded, strict=True):
            scatter_add(out, (group,), values, scale)

    def nbytes(self, d: int) -> int:
        b = _large(d)
        signs = [Sign(self.values).nbytes(size) for size in (b, d - b) if size]
        return index_nbytes(d, b) + sum(signs)

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """32 bits for each mean, and 2 for each coordinate."""
        return 64 + 2 * d

    def alpha(self, d: int, n: int) -> float:
        b = _large(d)
        return 1 / b if b > 1 else 2 / (1 + sqrt(d))


def _large(d: int) -> int:
    """b, the size of the group of large magnitudes."""
    return ceil(d / _SHARE)


def _others(x: Array, large: Indices) -> Indices:
    """The coordinates that are not in ``large``, on the device of x."""
    others = np.ones_like(x)
    others[large] = 0
    return kernels.backend_for(x).nonzero(others)
