"""Natural compression and natural dithering: magnitudes rounded to powers of two."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from mpicomp import kernels
from mpicomp.base.bits import Bytes, expect_length, pack, packed_nbytes, unpack
from mpicomp.base.checks import check_choice
from mpicomp.base.formats import EXPONENT_BITS
from mpicomp.compressors.base import Array
from mpicomp.compressors.dithering import check_levels
from mpicomp.compressors.support.quantizer import Leveled, Quantizer, Symbols
from mpicomp.compressors.support.scale import check_scale_format
from mpicomp.compressors.support.variances import of_cube
from mpicomp.keys import Key


@dataclass(frozen=True)
class Natural(Quantizer):
    """Horváth et al., "Natural compression for distributed deep learning": omega = 1/8.

    It is attained at |x_j| = 4/3 of a power of two: m in [1, 2] has the variance (m - 1)(2 - m).
    Each |x_j| becomes one of the two powers of two around it; a power of two and 0 stay.  The range
    of exponents is that of normal numbers in ``values``.  omega is for magnitudes within it: a smaller one
    becomes the smallest of them or 0, without bias; one above the largest power of two saturates there.
    Wire: d sign bits, then d exponents of 8 (f4) or 11 (f8) bits, 0 standing for x_j = 0.
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

    def symbols(self, buf: Bytes, d: int) -> Symbols:
        """Twice the exponent's code, plus the sign."""
        split = packed_nbytes(d, 1)
        codes = unpack(buf[split:], d, EXPONENT_BITS[self.values]).astype(np.int32)
        return 2 * codes + np.unpackbits(buf[:split], count=d, bitorder="little")

    def message(self, head: Bytes, symbols: Symbols) -> Bytes:
        codes = pack((symbols >> 1).astype(np.uint64), EXPONENT_BITS[self.values])
        return np.concatenate([np.packbits(symbols & 1, bitorder="little"), codes])

    def nbytes(self, d: int) -> int:
        return packed_nbytes(d, 1) + packed_nbytes(d, EXPONENT_BITS[self.values])

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """1 for each sign and 8 (f4) or 11 (f8) for each exponent."""
        return d * (1 + EXPONENT_BITS[self.values])

    def omega(self, d: int, n: int) -> float:
        return 1 / 8


@dataclass(frozen=True)
class NaturalDithering(Leveled):
    """Levels 0, l = 2^(1-s), .., 1/2, 1 times the norm N = |x|_p (same paper, section on dithering).

    p = 2: omega = t - 1 where t = l sqrt(d) >= 9/4 or s = 1, attained at equal |x_j|; else it is at most
    1/8 + 2 t^2 / 9.
    p = inf: omega = (sqrt(1 + (d - 1) l^2) - 1)/2 where that is 1/8 or more or s = 1, attained at
    (1, y, .., y), y = l / (1 + sqrt(1 + (d - 1) l^2)); else it is at most 1/8.

    Proof.  Let N = 1.  The variance at y = |x_j| is y (l - y) up to l, and beyond at most y^2 / 8, as that of
    natural compression; or 0, if s = 1.  So it is at most m y^2 + l^2 / (4 (1 + m)) for every m >= 1/8, or m
    >= 0.  p = 2: sum with sum y^2 = 1, and take m = t/2 - 1, or 1/8 where that is too small.  p = inf: sum
    over all but the largest, whose variance is 0; m is a bound if (d - 1) l^2 <= 4 m (1 + m).

    Wire: N, rounded up in the format ``values``, then d symbols of ceil(log2(2 s + 1)) bits.
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
