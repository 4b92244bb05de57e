"""Random dithering: a norm and, for each coordinate, one of a few evenly spaced levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array, Symbols32
from mpicomp.base.bits import Bytes, expect_length, pack_trits, unpack_trits
from mpicomp.base.checks import check_choice, integer
from mpicomp.base.formats import WIDTH
from mpicomp.compressors.support.quantizer import Leveled, Quantizer
from mpicomp.compressors.support.scale import check_scale_format
from mpicomp.compressors.support.variances import of_cube, of_sphere
from mpicomp.keys import Key


@dataclass(frozen=True)
class Dithering(Leveled):
    """C(x)_j = N sign(x_j) rho(s |x_j| / N) / s, N = |x|_p; rho rounds to an integer, without bias.

    rho(t) is one of the two integers around t.  For p = 2 this is QSGD (Alistarh et al., 2017).
    p = "2": omega = sqrt(d)/s - 1 for s <= sqrt(d)/2, attained at equal |x_j|.  For larger s omega is
    (d/4 - off^2)/s^2, at most d/(4 s^2).  off is the distance of s to the nearest length |h| of a vector h
    whose d entries are in Z + 1/2.
    p = "inf": omega = (sqrt(1 + (d - 1)/s^2) - 1)/2, attained at (1, t, .., t) with
    t = 1/(s + sqrt(s^2 + d - 1)).
    Proofs: ``support.variances``.

    Wire: N, rounded up in the format ``values``, then d symbols of ceil(log2(2 s + 1)) bits.

    s       the number of levels, from 1 to 32767
    p       the norm N, a text: "2" for the Euclidean norm, "inf" for max |x_j|
    values  the format of the norm: "f4" or "f8"
    """

    paper: ClassVar[str] = "Alistarh et al., QSGD (NeurIPS 2017)"

    s: int
    p: str = "2"
    values: str = "f4"

    def __post_init__(self) -> None:
        check_levels(self.s, 2**15 - 1)
        check_choice("p", self.p, ("2", "inf"))
        check_scale_format(self.values)

    def compress(self, x: Array, key: Key) -> Bytes:
        stream = key.private("dithering").name
        return kernels.backend_for(x).dither(x, self.s, self.p, self.values, stream)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        expect_length(buf, self.nbytes(out.size), self)
        kernels.backend_for(out).add_dither(buf, out, self.s, self.values, scale)

    def omega(self, d: int, n: int) -> float:
        return of_sphere(d, self.s) if self.p == "2" else of_cube(d, 1 / self.s)


@dataclass(frozen=True)
class Ternary(Quantizer):
    """C(x)_j = N sign(x_j) with probability |x_j| / N, else 0; N = max |x_j|: TernGrad without clipping.

    omega = (sqrt(d) - 1)/2, as for Dithering(1, "inf"), attained at x = (1, t, .., t), t = 1/(sqrt(d) + 1).
    Wire: N, rounded up in the format ``values``, then five values of -1, 0, 1 to a byte, 1.6 bits each.

    values  the format of the norm: "f4" or "f8"
    """

    paper: ClassVar[str] = "Wen et al., TernGrad (NeurIPS 2017)"

    values: str = "f4"

    def __post_init__(self) -> None:
        check_scale_format(self.values)

    def compress(self, x: Array, key: Key) -> Bytes:
        return kernels.backend_for(x).ternary(x, self.values, key.private("ternary").name)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        expect_length(buf, self.nbytes(out.size), self)
        kernels.backend_for(out).add_ternary(buf, out, self.values, scale)

    @property
    def head(self) -> int:
        return WIDTH[self.values]

    @property
    def alphabet(self) -> int:
        return 3

    def symbols(self, buf: Bytes, d: int) -> Symbols32:
        return unpack_trits(buf[self.head :], d).astype(np.int32)

    def message(self, head: Bytes, symbols: Symbols32) -> Bytes:
        return np.concatenate([head, pack_trits(symbols.astype(np.uint8))])

    def nbytes(self, d: int) -> int:
        return WIDTH[self.values] + -(-d // 5)

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """32 bits for the norm and 2 for each coordinate."""
        return 32 + 2 * d

    def omega(self, d: int, n: int) -> float:
        return of_cube(d, 1.0)


def check_levels(s: int, most: int) -> None:
    """Raise ``ConfigError`` unless s is an integer from 1 to ``most``."""
    integer(f"a number of levels, an integer from 1 to {most}", lambda v: 1 <= v <= most)("s", s)
