"""Scaled sign: one bit a coordinate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes, expect_length, packed_nbytes
from mpicomp.base.formats import WIDTH
from mpicomp.compressors.base import Contractive
from mpicomp.compressors.support.scale import check_scale_format
from mpicomp.keys import Key


@dataclass(frozen=True)
class Sign(Contractive):
    """C(x) = (|x|_1 / d) sign(x), sign(0) = +1.

    |C(x) - x|^2 = |x|^2 - |x|_1^2 / d exactly, for each x.  alpha = 1/d is attained if x has a single
    non-zero entry.  One bit has no symbol for 0: if z coordinates are 0, they contribute z (|x|_1 / d)^2 to
    the error.  With a symbol for 0 the error would be |x|^2 - (1 + z/d) |x|_1^2 / d, at log2(3) bits a
    coordinate for every vector.  If most of x is 0, consider ``TopK``, whose only error is in the coordinates
    that it omits.
    Wire: |x|_1 / d in the format ``values``, then d bits, 1 for a negative coordinate.

    values  the format of the norm: "f4" or "f8"
    """

    paper: ClassVar[str] = "Karimireddy et al., Error feedback fixes signSGD (ICML 2019)"

    values: str = "f4"

    def __post_init__(self) -> None:
        check_scale_format(self.values)

    def compress(self, x: Array, key: Key) -> Bytes:
        return kernels.backend_for(x).sign(x, self.values)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        expect_length(buf, self.nbytes(out.size), self)
        kernels.backend_for(out).add_sign(buf, out, self.values, scale)

    def nbytes(self, d: int) -> int:
        return WIDTH[self.values] + packed_nbytes(d, 1)

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """32 bits for the mean and 1 for each sign."""
        return 32 + d

    def alpha(self, d: int, n: int) -> float:
        return 1 / d
