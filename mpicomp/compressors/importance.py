"""Importance sampling of coordinates: the sparsifier for smoothness-aware methods."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import check_count, resolve_count
from mpicomp.base.formats import WIDTH, check_format
from mpicomp.codecs.values import decode_values, encode_values
from mpicomp.compressors.base import Support
from mpicomp.compressors.support.sparsifier import gather, scatter_add
from mpicomp.compressors.support.weighted import (
    Weighted,
    Weights,
    check_number,
    checked_weights,
    weights_in,
)
from mpicomp.kernels.definition.reductions import tree_sum
from mpicomp.keys import Key, odds


@dataclass(frozen=True)
class Importance(Weighted):
    """C(x)_j = x_j / p_j with probability p_j = w_j / (w_j + rho), else 0; rho is such that sum_j p_j = k.

    w are the ``weights``.  Let L be a smoothness matrix and |v|^2_L = v'Lv.  The draws of coordinates are
    independent, so E |C(x) - x|^2_L = sum_j (1/p_j - 1) L_jj x_j^2 <= max_j (1/p_j - 1) L_jj |x|^2.
    For w = diag(L) these p_j minimise the bound, which becomes rho |x|^2.  Equal weights give
    ``Bernoulli(k/d)``.
    Wire: the kept values, by position; the positions follow from the key and the weights.

    k  the coordinates that are sent on average: a count from 1 to d, or a fraction of d below 1
    """

    paper: ClassVar[str] = (
        "Safaryan, Hanzely, Richtárik, Smoothness matrices beat smoothness constants (NeurIPS 2021)"
    )

    k: int | float
    weights: Weights = None
    values: str = "f4"

    def __post_init__(self) -> None:
        check_count("k", self.k)
        object.__setattr__(self, "weights", checked_weights(self.weights))
        check_format(self.values)

    def compress(self, x: Array, key: Key) -> Bytes:
        return encode_values(gather(x, (self._kept(x.size, key),)), self.values)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        kept = self._kept(out.size, key)
        values = kernels.promoted(decode_values(buf, kept.size, self.values)) / self._odds(out.size)[kept]
        scatter_add(out, (kept,), values, scale)

    def coordinates(self, buf: Bytes, d: int, key: Key) -> Support:
        return (self._kept(d, key),)

    def nbytes(self, d: int) -> None:
        resolve_count(self.k, d)  # refuses a k above d
        check_number(self.weights, d)
        return None

    def mean_nbytes(self, d: int, n: int) -> float:
        return float(self._probabilities(d).sum()) * WIDTH[self.values]

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """32 bits for each coordinate that is kept."""
        return 32 * (len(buf) // WIDTH[self.values])

    def variance(self, costs: Array) -> float:
        p = self._probabilities(costs.size)
        return float(np.max((1 / p[p > 0] - 1) * costs[p > 0]))

    def _kept(self, d: int, key: Key) -> Any:
        return key.private("importance").heads(d, self._odds(d))

    def _odds(self, d: int) -> Array:
        """The coins' probabilities, shape (d,), on the run's device."""
        return _odds_in_use(self.weights, resolve_count(self.k, d), d)

    def _probabilities(self, d: int) -> Array:
        return _probabilities(self.weights, resolve_count(self.k, d), d)


@lru_cache(maxsize=256)
def _probabilities(weights: Weights, k: int, d: int) -> Array:
    """Inclusion probabilities, shape (d,), summing to k.  If at most k weights are positive, those get 1.

    A positive weight gives at least 2^-32, so that the sum may exceed k a little.  Cached because sender and
    receiver need the probabilities in each round.
    """
    w = weights_in(weights, d)
    positive = w[w > 0]
    p = (w > 0).astype(np.float64)
    if positive.size > k:
        # sum_j w_j / (w_j + rho) decreases in rho.  Weights all equal to the least or the largest weight
        # would give the two ends of the interval in which it is k.
        high = positive.size / k - 1
        low = max(float(positive.min()), np.finfo(np.float64).tiny) * high
        for _ in range(64):  # bisection of log rho: log(high/low) is below 710
            rho = sqrt(low) * sqrt(high)
            above = tree_sum(positive / (positive + rho)) > k
            low, high = (rho, high) if above else (low, rho)
        p[w > 0] = np.maximum(positive / (positive + high), 2.0**-32)  # the least probability of a coin
    p.setflags(write=False)
    return p


@lru_cache(maxsize=256)
def _odds(weights: Weights, k: int, d: int) -> Array:
    """The probabilities rounded to multiples of 2^-32, as coins have them; gains are their inverses."""
    p: Array = odds(_probabilities(weights, k, d))
    p.setflags(write=False)
    return p


@kernels.cached_on_device
def _odds_in_use(weights: Weights, k: int, d: int) -> Array:
    """``_odds`` on the run's device."""
    return kernels.to_device(_odds(weights, k, d))
