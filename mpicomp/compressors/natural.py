"""Natural compression and natural dithering: magnitudes rounded to powers of two."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array, Symbols32
from mpicomp.base.bits import Bytes, expect_length, pack, packed_nbytes, unpack
from mpicomp.base.checks import check_choice
from mpicomp.base.formats import EXPONENT_BITS
from mpicomp.compressors.dithering import check_levels
from mpicomp.compressors.support.quantizer import Leveled, Quantizer
from mpicomp.compressors.support.scale import check_scale_format
from mpicomp.compressors.support.variances import of_cube
from mpicomp.keys import Key


@dataclass(frozen=True)
class Natural(Quantizer):
    """Each |x_j| is rounded to one of the two powers of two around it, without bias; omega = 1/8.

    A power of two and 0 stay.  Source: Horváth et al., "Natural compression for distributed deep learning".
    omega is attained if all |x_j| are 4/3 of a power of two: m in [1, 2] has the variance (m - 1)(2 - m).
    Exponents have the range of normal numbers in ``values``, and omega holds for magnitudes in that range.
    Smaller magnitudes become the least power of two in it or 0, without bias; those up to twice the largest
    become the largest; still larger ones do not fit, and are refused.
    Wire: d sign bits, then d exponents of 8 (f4) or 11 (f8) bits, where 0 stands for C(x)_j = 0.

    values  the format whose exponents are sent: "f4" or "f8"
    """

    paper: ClassVar[str] = (
        "Horváth et al., Natural compression for distributed deep learning, arXiv 1905.10988"
    )

    values: str = "f4"

    def __post_init__(self) -> None:
        check_choice("values", self.values, tuple(EXPONENT_BITS))

    def compress(self, x: Array, key: Key) -> Bytes:
        return kernels.backend_for(x).natural(x, self.values, key.private("natural").name)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        expect_length(buf, self.nbytes(out.size), self)
        kernels.backend_for(out).add_natural(buf, out, self.values, scale)

    @property
    def head(self) -> int:
        return 0

    @property
    def alphabet(self) -> int:
        return 2 ** (1 + EXPONENT_BITS[self.values])

    def symbols(self, buf: Bytes, d: int) -> Symbols32:
        """The symbols: twice the exponent's code, plus the sign bit."""
        split = packed_nbytes(d, 1)
        codes = unpack(buf[split:], d, EXPONENT_BITS[self.values]).astype(np.int32)
        return 2 * codes + np.unpackbits(buf[:split], count=d, bitorder="little")

    def message(self, head: Bytes, symbols: Symbols32) -> Bytes:
        codes = pack((symbols >> 1).astype(np.uint64), EXPONENT_BITS[self.values])
        return np.concatenate([np.packbits(symbols & 1, bitorder="little"), codes])

    def nbytes(self, d: int) -> int:
        return packed_nbytes(d, 1) + packed_nbytes(d, EXPONENT_BITS[self.values])

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """1 bit for each sign and 8 (f4) or 11 (f8) for each exponent."""
        return d * (1 + EXPONENT_BITS[self.values])

    def omega(self, d: int, n: int) -> float:
        return 1 / 8


@dataclass(frozen=True)
class NaturalDithering(Leveled):
    """|x_j| is rounded to 0, l, 2 l, .., 1/2 or 1 times N = |x|_p, without bias; l = 2^(1-s).

    p = 2, with t = l sqrt(d): omega = t - 1 if t >= 9/4 or s = 1, attained at equal |x_j|; otherwise omega is
    at most 1/8 + 2 t^2 / 9, the value returned.
    p = inf, with r = sqrt(1 + (d - 1) l^2): omega = (r - 1)/2 if that is 1/8 or more or s = 1, attained at
    (1, y, .., y), y = l / (1 + r); otherwise omega is at most 1/8, the value returned.

    Proof.  Let N = 1.  The variance at y = |x_j| is y (l - y) for y <= l.  For y > l it is at most y^2 / 8,
    as for natural compression; if s = 1 there is no such y.  So it is at most m y^2 + l^2 / (4 (1 + m)) for
    every m >= 1/8 (s = 1: m >= 0).  p = 2: sum over j, with sum y^2 = 1, and take m = t/2 - 1, or 1/8 if that
    is larger.  p = inf: sum over all j but the largest, whose variance is 0; m is a bound if
    (d - 1) l^2 <= 4 m (1 + m).

    Wire: N, rounded up in the format ``values``, then d symbols of ceil(log2(2 s + 1)) bits.

    s       the number of levels, from 1 to 127
    p       the norm N, a text: "2" for the Euclidean norm, "inf" for max |x_j|
    values  the format of the norm: "f4" or "f8"
    """

    paper: ClassVar[str] = "Horváth et al., arXiv 1905.10988, section on dithering"

    s: int
    p: str = "2"
    values: str = "f4"

    def __post_init__(self) -> None:
        check_levels(self.s, 127)
        check_choice("p", self.p, ("2", "inf"))
        check_scale_format(self.values)

    def compress(self, x: Array, key: Key) -> Bytes:
        stream = key.private("natural_dithering").name
        return kernels.backend_for(x).natural_dither(x, self.s, self.p, self.values, stream)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        expect_length(buf, self.nbytes(out.size), self)
        kernels.backend_for(out).add_natural_dither(buf, out, self.s, self.values, scale)

    def omega(self, d: int, n: int) -> float:
        lowest = 2.0 ** (1 - self.s)
        if self.p == "inf":
            return max(of_cube(d, lowest), 1 / 8 if self.s > 1 else 0.0)
        t = sqrt(d) * lowest
        return t - 1 if t >= 9 / 4 or self.s == 1 else 1 / 8 + 2 * t**2 / 9
