"""Coin-flip sparsifiers: a coin for each coordinate, or a single coin for the whole vector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from mpicomp.base.checks import check_probability
from mpicomp.base.formats import WIDTH, check_format
from mpicomp.compressors.support.sparsifier import Sparsifier, Support
from mpicomp.keys import Key, Stream, cached_draw, odds


@dataclass(frozen=True)
class _ByChance(Sparsifier):
    """C(x)_j is x_j / q with probability q, else 0; a subclass says which coordinates go together."""

    q: float
    values: str = "f4"

    def __post_init__(self) -> None:
        check_probability("q", self.q)
        check_format(self.values)

    def gain(self, d: int, key: Key) -> float:
        return 1 / _odds(self.q)

    def max_count(self, d: int, n: int) -> int:
        return d

    def nbytes(self, d: int) -> None:
        return None

    def mean_nbytes(self, d: int, n: int) -> float:
        return self.q * d * WIDTH[self.values]

    def omega(self, d: int, n: int) -> float:
        return 1 / self.q - 1


@dataclass(frozen=True)
class Bernoulli(_ByChance):
    """C(x)_j = x_j / q with probability q, else 0, independently for each j; omega = 1/q - 1.

    q  the probability that a coordinate is sent, above 0 and at most 1
    """

    paper: ClassVar[str] = "Khirirat, Feyzmahdavian, Johansson, arXiv 1806.06573"

    def support(self, d: int, key: Key) -> Support:
        return _kept(key.private("bernoulli"), d, _odds(self.q))

    def sends(self, d: int, n: int) -> float:
        return 1 - (1 - self.q) ** d


@dataclass(frozen=True)
class Lazy(_ByChance):
    """C(x) = x / q with probability q, else 0; omega = 1/q - 1.

    q  the probability that x is sent, above 0 and at most 1
    """

    paper: ClassVar[str] = (
        "Gorbunov, Burlachenko, Li, Richtárik, MARINA (ICML 2021), as one of its compressors"
    )

    def support(self, d: int, key: Key) -> Support:
        return (slice(0, d),) if key.private("lazy").coin(_odds(self.q)) else ()

    def sends(self, d: int, n: int) -> float:
        return self.q


@lru_cache
def _odds(q: float) -> float:
    """The coin's probability; cached because sender and receiver need it twice a message."""
    return float(odds(q))


@cached_draw(4)
def _kept(stream: Stream, d: int, q: float) -> Support:
    """The support; cached because a sender and a receiver in one process both need it."""
    return (stream.heads(d, q),)
