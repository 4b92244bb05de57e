"""RankR: an approximation of rank r to the vector, read as a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes, expect_length
from mpicomp.base.checks import check_positive_integer
from mpicomp.base.errors import DivergedError, not_finite
from mpicomp.base.formats import WIDTH, check_format
from mpicomp.codecs.values import decode_values, encode_values
from mpicomp.compressors.support.matrices import MatrixCompressor, columns_of
from mpicomp.kernels.lowrank import add_outer, orthonormal, scaled, times
from mpicomp.keys import Key


@dataclass(frozen=True)
class RankR(MatrixCompressor):
    """C(x) = P P'M, of rank r, for x read as a matrix M with ``rows`` rows; alpha = r / min(rows, d/rows).

    x holds the matrix row after row; if it has fewer rows than columns, M is its transpose.  P is an
    orthonormal basis of the range of M G, where G is Gaussian with r columns: one power iteration.

    Proof of alpha.  G = Q R with Q uniform among the matrices of r orthonormal columns, and P spans the
    range of M Q = M G R^-1.  So P P'M Q = M Q, hence |P P'M|^2 >= |P P'M Q|^2 = |M Q|^2 (Frobenius norms),
    whose mean is r/columns |M|^2 because E Q Q' = (r/columns) I; and |M - P P'M|^2 = |M|^2 - |P P'M|^2.
    Equality holds if M has orthonormal columns.  TopK with as many values has a larger alpha, r/rows +
    r/columns; RankR is meant for matrices that are nearly of low rank.

    If r (rows + columns) >= d, the factors are no shorter than x, as for a single row; then x itself is sent,
    and alpha = 1.
    Wire: P, then M'P, row after row; or x.  The constants hold up to the rounding to ``values``.

    r  the rank, 1 or above: the columns of P
    """

    paper: ClassVar[str] = "Vogels, Karimireddy, Jaggi, PowerSGD (NeurIPS 2019), without the warm start"

    r: int
    rows: int | None = None
    values: str = "f4"

    def __post_init__(self) -> None:
        check_positive_integer("r", self.r)
        super().__post_init__()
        check_format(self.values)

    def compress(self, x: Array, key: Key) -> Bytes:
        long, short = self._sides(x.size)
        if self._whole(x.size):
            return encode_values(x, self.values)
        if not np.isfinite(x).all():
            raise not_finite()
        M = kernels.promoted(x).reshape(self.rows_of(x.size), -1)
        M = M if len(M) == long else M.T
        G = kernels.to_device(key.private("rankr").normals(short * self.r).reshape(short, self.r))
        P = orthonormal(times(scaled(M), G))
        with np.errstate(over="ignore", invalid="ignore"):
            Q = times(M.T, P)
        if not np.isfinite(Q).all():
            raise DivergedError("RankR: the factor M'P of a finite vector is beyond double precision.")
        return encode_values(np.concatenate([P.ravel(), Q.ravel()]), self.values)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        expect_length(buf, self.nbytes(out.size), self)
        value: Array = kernels.promoted(decode_values(buf, len(buf) // WIDTH[self.values], self.values))
        if self._whole(out.size):
            kernels.add_scaled(out, value, scale)
            return
        long, _ = self._sides(out.size)
        factors, M = value.reshape(-1, self.r), out.reshape(self.rows_of(out.size), -1)
        add_outer(M if len(M) == long else M.T, factors[:long], factors[long:], scale)

    def nbytes(self, d: int) -> int:
        return min(self.r * sum(self._sides(d)), d) * WIDTH[self.values]

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """32 bits for each entry of the two factors, or of x if x itself is sent."""
        return 32 * (len(buf) // WIDTH[self.values])

    def alpha(self, d: int, n: int) -> float:
        return 1.0 if self._whole(d) else self.r / min(self._sides(d))

    def _sides(self, d: int) -> tuple[int, int]:
        """The longer and the shorter side of the matrix."""
        rows = self.rows_of(d)
        columns = columns_of(d, rows)
        return max(rows, columns), min(rows, columns)

    def _whole(self, d: int) -> bool:
        """Whether x itself is sent, in place of the factors."""
        return self.r * sum(self._sides(d)) >= d
