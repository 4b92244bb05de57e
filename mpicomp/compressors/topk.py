"""TopK: the k entries of largest magnitude, sent as coded indices and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes, expect_length
from mpicomp.base.checks import check_count, resolve_count
from mpicomp.base.formats import WIDTH, check_format
from mpicomp.codecs.indices import decode_indices, encode_indices
from mpicomp.codecs.sparse import add_entries
from mpicomp.codecs.values import encode_values
from mpicomp.compressors.base import Contractive, Support
from mpicomp.compressors.support.sparsifier import gather
from mpicomp.compressors.support.stacked import StackedSum
from mpicomp.kernels import join
from mpicomp.kernels.index_layouts import index_nbytes
from mpicomp.keys import Key


@dataclass(frozen=True)
class TopK(Contractive):
    """C(x) = x on the k largest |x_j| (at ties, the lowest indices), 0 elsewhere; alpha = k/d.

    k       a count, or a fraction of d, which means max(1, round(k d)): TopK(k=10) or TopK(k=0.01)
    values  the format in which values are sent: "f8", "f4", "f2" or "bf16"

    Wire: the set of the k indices, packed (the index code of (d, k)), then k values.
    """

    paper: ClassVar[str] = "Alistarh et al., The convergence of sparsified gradient methods (NeurIPS 2018)"

    k: int | float
    values: str = "f4"

    def __post_init__(self) -> None:
        check_count("k", self.k)
        check_format(self.values)

    def compress(self, x: Array, key: Key) -> Bytes:
        kept = kernels.backend_for(x).top_k(x, resolve_count(self.k, x.size))
        return join(encode_indices(kept, x.size), encode_values(gather(x, (kept,)), self.values))

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        expect_length(buf, self.nbytes(out.size), self)
        add_entries(buf, out, resolve_count(self.k, out.size), self.values, scale)

    def coordinates(self, buf: Bytes, d: int, key: Key) -> Support:
        k = resolve_count(self.k, d)
        return (decode_indices(buf[: index_nbytes(d, k)], d, k),)

    def sum(self, out: Array, key: Key, scale: float = 1.0) -> StackedSum:
        return StackedSum(out, resolve_count(self.k, out.size), self.values, scale, what=self)

    def nbytes(self, d: int) -> int:
        k = resolve_count(self.k, d)
        return index_nbytes(d, k) + k * WIDTH[self.values]

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """32 bits for each of the k values."""
        return 32 * resolve_count(self.k, d)

    def alpha(self, d: int, n: int) -> float:
        return resolve_count(self.k, d) / d
