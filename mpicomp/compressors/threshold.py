"""Hard threshold: entries of at least a given magnitude are sent."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from sys import float_info
from typing import ClassVar

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import number, plain_value
from mpicomp.base.formats import check_format
from mpicomp.codecs.count import decode_count
from mpicomp.codecs.sparse import add_sparse, encode_sparse, sparse_indices
from mpicomp.compressors.base import Absolute, Support
from mpicomp.keys import Key

_check_average = number("an average number of coordinates, above 0", lambda v: v > 0)
_check_lam = number("a finite threshold of 0 or above", lambda v: 0 <= v <= float_info.max)


@dataclass(frozen=True)
class HardThreshold(Absolute):
    """C(x)_j = x_j where |x_j| >= lam and x_j != 0, else 0; |C(x) - x|^2 <= d lam^2.

    lam has the units of x; ``averaging(k)`` is the paper's choice to send k coordinates a round on average.
    Sahu et al., "Rethinking gradient sparsification as total error minimization" (NeurIPS 2021).
    Wire: the number of kept coordinates, their index code, their values.

    lam  the threshold, 0 or above
    """

    paper: ClassVar[str] = (
        "Sahu et al., Rethinking gradient sparsification as total error minimization (NeurIPS 2021)"
    )

    lam: float
    values: str = "f4"

    def __post_init__(self) -> None:
        _check_lam("lam", self.lam)
        object.__setattr__(self, "lam", float(self.lam))
        check_format(self.values)

    @classmethod
    def averaging(cls, k: float, values: str = "f4") -> HardThreshold:
        """lam = 1/(2 sqrt(k)), the paper's choice to send k coordinates a round on average.

        Written from memory.  The choice was made for gradients of networks in EF-SGD.  The number of
        coordinates sent depends on the scale of the gradients, so check the bytes of a run and adjust lam.
        Raises ``ConfigError`` unless k is above 0.
        """
        k = plain_value(k)
        _check_average("k", k)
        return cls(1 / (2 * sqrt(k)), values)

    def compress(self, x: Array, key: Key) -> Bytes:
        kept = kernels.backend_for(x).at_least(x, self.lam)
        return encode_sparse(kept, kernels.backend_for(x).gather(x, kept), x.size, self.values)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        add_sparse(buf, out, self.values, scale)

    def coordinates(self, buf: Bytes, d: int, key: Key) -> Support:
        return (sparse_indices(buf, d),)

    def nbytes(self, d: int) -> None:
        return None

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """32 bits for each coordinate that is kept."""
        return 32 * decode_count(buf, d)

    def delta(self, d: int) -> float:
        return d * self.lam**2
