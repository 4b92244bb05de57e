"""RandK: k coordinates chosen uniformly at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.base.checks import check_choice, check_count, resolve_count
from mpicomp.base.formats import WIDTH, check_format
from mpicomp.compressors.support.sparsifier import Sparsifier, Support, window
from mpicomp.keys import Key, Stream, cached_draw


@dataclass(frozen=True)
class RandK(Sparsifier):
    """C(x) = (d/k) x on k random coordinates; E |C(x) - x|² = omega |x|² with omega = d/k - 1.

    k       a count, or a fraction of d, which means max(1, round(k d)) coordinates
    layout  "uniform": all k-subsets are equally likely, as in the papers.  "block": a cyclic window of k
            coordinates at a random start; omega is equal, and the speed is that of a memory copy.
    values  the format in which values are sent: "f8", "f4", "f2" or "bf16"
    mask    "independent" across workers, or "shared" by all workers.  With "shared", averaging over
            workers does not reduce the variance: (A, B) = (omega, 0), see ``Unbiased.ab``.  The server's
            broadcast has another mask.
    """

    paper: ClassVar[str] = "Stich, Cordonnier, Jaggi, Sparsified SGD with memory (NeurIPS 2018)"

    k: int | float
    layout: str = "uniform"
    values: str = "f4"
    mask: str = "independent"

    def __post_init__(self) -> None:
        check_count("k", self.k)
        check_choice("layout", self.layout, ("uniform", "block"))
        check_choice("mask", self.mask, ("independent", "shared"))
        check_format(self.values)

    def support(self, d: int, key: Key) -> Support:
        # A broadcast under the workers' own mask would scale what it gets twice: its draw is the server's.
        shared = self.mask == "shared" and key.worker is not None
        stream = key.shared("randk") if shared else key.private("randk")
        k = resolve_count(self.k, d)
        if k == d:
            return (slice(0, d),)
        if self.layout == "block":
            return window(stream.below(d), k, d)
        return _uniform(stream, d, k)

    def gain(self, d: int, key: Key) -> float:
        return d / resolve_count(self.k, d)

    def max_count(self, d: int, n: int) -> int:
        return resolve_count(self.k, d)

    def nbytes(self, d: int) -> int:
        return resolve_count(self.k, d) * WIDTH[self.values]

    def omega(self, d: int, n: int) -> float:
        return d / resolve_count(self.k, d) - 1

    def ab(self, d: int, n: int) -> tuple[float, float]:
        omega = self.omega(d, n)
        return (omega, 0.0) if self.mask == "shared" else (omega / n, 0.0)


@cached_draw(4)
def _uniform(stream: Stream, d: int, k: int) -> Support:
    """The support; cached because a sender and a receiver in one process both need it."""
    return (stream.positions(d, 0, k),)
