"""PermK: the workers' messages partition the coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.base.checks import check_choice
from mpicomp.base.errors import ConfigError
from mpicomp.base.formats import WIDTH, check_format
from mpicomp.compressors.support.sparsifier import Sparsifier, Support, window
from mpicomp.keys import Key


@dataclass(frozen=True)
class PermK(Sparsifier):
    """Each worker sends its own block of one random permutation of the coordinates, scaled; for any d and n.

    d >= n: worker i sends n x_j for the coordinates j in its block of a shared random permutation.  Blocks
    have floor(d/n) or ceil(d/n) coordinates.  A second shared permutation assigns the blocks to the workers,
    so that the owner of each coordinate is uniformly distributed, and A = B = 1 holds for uneven blocks too.
    n > d: coordinate j, for each j, is assigned to q = floor(n/d) random workers, and n - q d workers get no
    coordinate.  The owners of coordinate j send (n/q) x_j, the workers without a coordinate send nothing;
    A = B = (n - q) / (q (n - 1)).

    For B > 0 MARINA's theory replaces L_plus by L_pm in part.  On quadratics and least squares both constants
    are exact.  For logistic regression and the other GLMs only a bound on L_pm is known.  It equals the bound
    on L_plus up to the penalty.  So on GLMs theory hardly gives PermK a larger step than independent
    RandK(d/n).

    layout  "uniform": blocks of a random permutation.  "block" (d >= n): contiguous blocks after a random
            cyclic shift, with equal constants, and without index arithmetic.
    """

    paper: ClassVar[str] = (
        "Szlendak, Tyurin, Richtárik, Permutation compressors (ICLR 2022), Definitions 2 and 3"
    )

    layout: str = "uniform"
    values: str = "f4"

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, ("uniform", "block"))
        check_format(self.values)

    def support(self, d: int, key: Key) -> Support:
        if key.worker is None:
            raise ConfigError(
                "PermK is a compressor of n workers jointly; it cannot serve the server's messages."
            )
        slot = int(key.shared("permk/slot").permutation(key.n, key.worker, key.worker + 1)[0])
        if d < key.n:
            return (slice(slot % d, slot % d + 1),) if slot < key.n // d * d else ()
        short, longer = divmod(d, key.n)  # the first `longer` slots have one coordinate more
        start = slot * short + min(slot, longer)
        stop = start + short + (slot < longer)
        shared = key.shared("permk")
        if self.layout == "block":
            return window((shared.below(d) + start) % d, stop - start, d)
        return (shared.positions(d, start, stop),)

    def gain(self, d: int, key: Key) -> float:
        return key.n / _copies(d, key.n)

    def max_count(self, d: int, n: int) -> int:
        return -(-d // n)

    def nbytes(self, d: int) -> None:
        return None

    def mean_nbytes(self, d: int, n: int) -> float:
        return d * _copies(d, n) / n * WIDTH[self.values]

    def sends(self, d: int, n: int) -> float:
        return min(1.0, d * _copies(d, n) / n)

    def omega(self, d: int, n: int) -> float:
        return n / _copies(d, n) - 1

    def ab(self, d: int, n: int) -> tuple[float, float]:
        q = _copies(d, n)
        a = (n - q) / (q * (n - 1)) if n > 1 else 0.0  # one worker sends everything
        return a, a


def _copies(d: int, n: int) -> int:
    """The number of workers that own each coordinate."""
    return max(1, n // d)
