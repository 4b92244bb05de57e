"""Block floats: integers of 4 or 8 bits, and a power of two for each block."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes, expect_length, packed_nbytes
from mpicomp.base.errors import not_allowed
from mpicomp.compressors.base import Compressor, Contractive, Unbiased
from mpicomp.kernels.definition.block_floats import blocks, largest
from mpicomp.keys import Key

_BITS = (4, 8)
_BLOCKS = (16, 32, 64, 128)


@dataclass(frozen=True)
class _BlockFloats(Compressor):
    """The common part of ``BlockFloat`` and ``BlockDithering``: all but the rounding of an entry.

    bits   the bits of an integer, 4 or 8
    block  the entries that share a power of two: 16, 32, 64 or 128; the last block may have fewer
    """

    bits: int = 8
    block: int = 32

    def __post_init__(self) -> None:
        for name, allowed in (("bits", _BITS), ("block", _BLOCKS)):
            value = getattr(self, name)
            if type(value) is not int or value not in allowed:
                raise not_allowed(name, repr(value), ", ".join(map(str, allowed)))

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        expect_length(buf, self.nbytes(out.size), self)
        kernels.backend_for(out).add_block_floats(buf, out, self.bits, self.block, scale)

    def nbytes(self, d: int) -> int:
        return blocks(d, self.block) + packed_nbytes(d, self.bits)

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """8 bits for each block, and ``bits`` for each coordinate."""
        return 8 * blocks(d, self.block) + self.bits * d


@dataclass(frozen=True)
class BlockFloat(_BlockFloats, Contractive):
    """C(x)_j = m_j 2^e for integers |m_j| <= T = 2^(bits - 1) - 1 (127 or 7) and one e for each block of x.

    2^e is the least power of two with |x_j| <= T 2^e in the block, and m_j is x_j 2^-e rounded to nearest,
    ties to even.  So no entry is clipped, and each is off by at most 2^e / 2, and by at most |x_j|.

    alpha = (T^2 - 1)/(T^2 + b - 1), b the entries of a block, or d if that is less: 0.998 for 8 bits and
    0.6 for 4 bits and blocks of 32.  Proof, for a block and in units of 2^e: the largest entry exceeds T/2 by
    the choice of e, and its error is at most 1/2.  The other b - 1 have errors of at most
    a_j = min(1/2, |x_j|).  So |C(x) - x|^2 / |x|^2 <= (1/4 + sum a_j^2) / (T^2/4 + sum a_j^2), which grows
    with the sum, and the sum is at most (b - 1)/4.  That makes b/(T^2 + b - 1).  It is approached by an entry
    just above T/2 among entries of 1/2, which become 0.  Squared errors add up over blocks.

    Blocks whose largest entry is below about 2^-127 have the least e there is, and alpha does not hold for
    them; 0 is exact.  The range above is that of single precision.
    Wire: a byte e + 125 + bits for each block, then d integers of ``bits`` bits, in two's complement.  For 8
    bits this is the layout MXINT8, with the code 255 as a number.
    """

    paper: ClassVar[str] = "Rouhani et al., Microscaling data formats for deep learning, arXiv 2310.10537"

    def compress(self, x: Array, key: Key) -> Bytes:
        return kernels.backend_for(x).block_floats(x, self.bits, self.block, None)

    def alpha(self, d: int, n: int) -> float:
        T, b = largest(self.bits), min(self.block, d)
        return (T**2 - 1) / (T**2 + b - 1)


@dataclass(frozen=True)
class BlockDithering(_BlockFloats, Unbiased):
    """C(x)_j = m_j 2^e as in ``BlockFloat``, with m_j rounded up or down at random, without bias.

    omega = (√((T^2 - 1)^2 + 4 T^2 b) - (T^2 - 1)) / (2 T^2), b the entries of a block, or d if that is less:
    0.00198 for 8 bits and 0.456 for 4 bits and blocks of 32.  Proof, for a block and in units of 2^e: an
    entry has the variance f (1 - f), f being the fraction of |x_j|.  The largest entry exceeds T/2, with a
    variance of at most 1/4.  The others have |x_j| >= f.  So omega bounds the sum of variances over |x|^2 if
    1/4 + (b - 1) (f - f^2) <= omega (T^2/4 + (b - 1) f^2) for all f.  The difference of both sides is least
    at f = 1/(2 (1 + omega)), where this says (omega T^2 - 1)(1 + omega) >= b - 1, with equality for the omega
    above.  It is approached by an entry just above T/2 among entries of that f.

    Blocks whose largest entry is below about 2^-127 have the least e there is: unbiased too, beyond omega.
    Wire: as ``BlockFloat``.
    """

    paper: ClassVar[str] = (
        "Rouhani et al., Microscaling data formats for deep learning, arXiv 2310.10537, rounded without bias"
    )

    def compress(self, x: Array, key: Key) -> Bytes:
        stream = key.private("block_dithering").name
        return kernels.backend_for(x).block_floats(x, self.bits, self.block, stream)

    def omega(self, d: int, n: int) -> float:
        T, b = largest(self.bits), min(self.block, d)
        return (sqrt((T**2 - 1) ** 2 + 4 * T**2 * b) - (T**2 - 1)) / (2 * T**2)
