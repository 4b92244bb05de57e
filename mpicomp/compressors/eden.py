"""EDEN, and DRIVE, which is EDEN with one bit: the levels nearest to the rotated vector, and a scale."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log, log1p, sqrt
from typing import Any, ClassVar, cast

import numpy as np
import scipy

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes, expect_length
from mpicomp.base.checks import check_choice
from mpicomp.base.errors import not_allowed
from mpicomp.compressors.base import Compressor, Contractive, Support
from mpicomp.compressors.bernoulli import Bernoulli
from mpicomp.compressors.support import rotations
from mpicomp.compressors.support.rotations import check_block
from mpicomp.compressors.support.sparsifier import gather, scatter_add, size
from mpicomp.keys import Key

_BITS = (1, 2, 3, 4)
_SCALES = ("least_error", "inner_product")


@dataclass(frozen=True)
class EDEN(Compressor):
    """C(x) = S R'c for the levels c nearest to y = R x, which is rotated as in ``RotatedSign``.

    The 2^bits levels are those of Lloyd and Max's quantiser of standard normal numbers.  In a block of m
    entries c_j is the level nearest to y_j sqrt(m)/|y|; for 1 bit c = sign(y).  Each block has a scale S of
    its own.  The errors below are those of a block that is not cut, and the numbers, for 1, 2, 3 and 4 bits,
    hold if the entries of y are nearly normal.

    scale="least_error": S = <c, y> / |c|^2, and |C(x) - x|^2 = |x|^2 - <c, y>^2 / |c|^2, or 0.363, 0.117,
    0.0345 and 0.0095 of |x|^2.  If signs with one magnitude have a lesser error in a block, the sender gives
    all its c_j the least magnitude, which makes C(x) just that.  So C is contractive with alpha = 1/2, for
    every x, as ``RotatedSign`` is, and EDEN(1) is RotatedSign(1).  A larger alpha is not proved.

    scale="inner_product": S = |y|^2 / <c, y>, so that <C(x), x> = |x|^2.  The error
    |x|^2 (|c|^2 |x|^2 / <c, y>^2 - 1) is 0.571, 0.133, 0.0358 and 0.0096 of |x|^2.  With 1 bit it is DRIVE.
    The papers prove that C is unbiased if the rotation is uniform.  R, which their programs use too, is not
    uniform.  With 1 bit, x = (1, 1/2, 0, ..) has C(x) = (5/4, 0, ..) in every draw: the error |x|^2/4 is all
    bias.  For two equal entries the error is |x|^2.  So C is neither unbiased nor contractive, and no method
    takes it.

    bits < 1: each coordinate is kept with this probability, by the key, so no positions are sent.  C(x) is
    EDEN(1) of those that are kept; with scale="inner_product" times 1/bits.  alpha = bits/2.

    The scales have the range of single precision; alpha does not hold in blocks of subnormal ones.
    Wire: 4 bytes for each block, S times a power of two, then m symbols of ``bits`` bits for each block.

    bits   the bits of a level: 1, 2, 3 or 4, or a fraction above 0 and below 1
    scale  "least_error", or "inner_product" as in the papers' means of many vectors
    block  the entries that are rotated together: 128, 256, 512, 1024, 2048 or 4096
    """

    paper: ClassVar[str] = "Vargaftik et al., EDEN (ICML 2022), and DRIVE (NeurIPS 2021) for one bit"

    bits: int | float = 2
    scale: str = "least_error"
    block: int = 4096

    # A method tells kinds by isinstance.  So ``EDEN(..)`` gives an object of the contractive class below
    # where that is proved.
    def __new__(cls, bits: int | float = 2, scale: str = "least_error", block: int = 4096) -> EDEN:
        made = object.__new__(_Contractive if scale == "least_error" else EDEN)
        if not isinstance(made, cls):  # ``replace`` has changed the scale; Python then initialises nothing
            EDEN.__init__(made, bits, scale, block)
        return made

    def __post_init__(self) -> None:
        whole = type(self.bits) is int and self.bits in _BITS
        if not whole and not (isinstance(self.bits, float) and 0 < self.bits < 1):
            raise not_allowed("bits", repr(self.bits), "1, 2, 3, 4, or a fraction, a float between 0 and 1")
        check_choice("scale", self.scale, _SCALES)
        check_block(self.block)

    def __reduce__(self) -> tuple[Any, ...]:
        return EDEN, (self.bits, self.scale, self.block)

    def contractive_variant(self) -> Contractive:
        return cast(Contractive, replace(self, scale="least_error"))

    def compress(self, x: Array, key: Key) -> Bytes:
        if self.bits < 1:
            x = gather(x, self._kept(x.size, key))
        return rotations.message(x, self._width, self.block, self.scale == "least_error", key)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        if self.bits >= 1:
            expect_length(buf, self._nbytes(out.size), self)
            rotations.add(buf, out, self._width, self.block, scale, key)
            return
        support = self._kept(out.size, key)
        expect_length(buf, self._nbytes(size(support)), self)
        values = np.zeros_like(out, dtype=np.float64, shape=size(support))
        rotations.add(buf, values, 1, self.block, 1.0, key)
        gain = 1.0 if self.scale == "least_error" else self._mask.gain(out.size, key)
        scatter_add(out, support, values, scale * gain)

    @property
    def selects(self) -> bool:
        return self.bits < 1

    def coordinates(self, buf: Bytes, d: int, key: Key) -> Support:
        return self._kept(d, key) if self.selects else super().coordinates(buf, d, key)

    def nbytes(self, d: int) -> int | None:
        return self._nbytes(d) if self.bits >= 1 else None

    def mean_nbytes(self, d: int, n: int) -> float:
        """The mean over the number of coordinates that are kept, which is binomial, if ``bits`` < 1."""
        if self.bits >= 1:
            return float(self._nbytes(d))
        p = 1 / self._mask.gain(d, Key(0, 0, 0, n))
        spread = 40 + 10 * sqrt(d * p * (1 - p))
        k = np.arange(max(0, int(d * p - spread)), min(d, int(d * p + spread)) + 1)
        ln_factorial = scipy.special.gammaln
        ln = k * log(p) + (d - k) * log1p(-p) - ln_factorial(k + 1) - ln_factorial(d - k + 1)
        weights = np.exp(ln - ln.max())
        return float(weights @ [self._nbytes(int(count)) for count in k] / weights.sum())

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """32 bits for each block and ``bits`` for each coordinate; if ``bits`` < 1, 1 for each that is
        kept."""
        kept = d if self.bits >= 1 else size(self._kept(d, key))
        return rotations.charged(kept, self._width, self.block)

    @property
    def _width(self) -> int:
        """The bits of a symbol."""
        return int(self.bits) if self.bits >= 1 else 1

    @property
    def _mask(self) -> Bernoulli:
        return Bernoulli(self.bits)

    def _kept(self, d: int, key: Key) -> Support:
        return self._mask.support(d, key)

    def _nbytes(self, count: int) -> int:
        """The size of the message of ``count`` coordinates."""
        return rotations.nbytes(count, self._width, self.block)


class _Contractive(EDEN, Contractive):
    def alpha(self, d: int, n: int) -> float:
        return min(1, self.bits) / 2


_Contractive.__name__ = _Contractive.__qualname__ = "EDEN"  # what texts and errors call it
