"""The base of compressors that make smaller errors in coordinates of larger weight."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from math import ulp
from sys import float_info
from typing import Any, Self

import numpy as np

from mpicomp.base.arrays import Array, Reals
from mpicomp.base.errors import ConfigError
from mpicomp.compressors.base import Unbiased

Weights = tuple[float, ...] | None


class Weighted(Unbiased):
    """An unbiased compressor that divides its budget among the coordinates by their weights.

    weights  w_j >= 0: the cost of a unit of squared error in coordinate j, such as the diagonal entry of a
             smoothness matrix; only their ratios matter.  None: all equal.  A coordinate of weight 0 is
             never sent, so C is unbiased only on vectors that vanish there.

    Subclasses are dataclasses with a field ``weights``.
    """

    weights: Weights

    @abstractmethod
    def variance(self, costs: Array) -> float:
        """A bound c: E |C(x) - x|^2_L <= c |x|^2 for every L >= 0 with the diagonal ``costs``, shape (d,).

        |v|^2_L stands for v'Lv.
        """

    def omega(self, d: int, n: int) -> float:
        return self.variance(np.ones(d))

    def fitted(self, costs: Array) -> Self:
        """This compressor with the weights ``costs``, shape (d,); unchanged if it has weights already."""
        weights = tuple(costs.tolist()) if self.weights is None else self.weights
        return replace(self, weights=weights)  # type: ignore[type-var]  # subclasses are dataclasses


class _HashedOnce(tuple[float, ...]):
    """A tuple that caches its hash, because caches look up a compressor in each round."""

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tuple(self),)  # pickles no hash: it may differ in another Python

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()


def checked_weights(weights: Weights) -> Weights:
    """The weights as a tuple that caches its hash, or None.

    Raises ``ConfigError`` unless they are None, or finite, not negative and not all 0.
    """
    if weights is None or isinstance(weights, _HashedOnce):
        return weights
    if not isinstance(weights, tuple) or not all(isinstance(w, int | float) for w in weights):
        raise ConfigError(
            f"weights={weights!r}; allowed: None, or a tuple with a number for each coordinate."
        )
    wrong = [w for w in weights if not 0 <= w <= float_info.max]
    if wrong or not any(weights):
        came = f"{wrong[0]!r} among them" if wrong else "all 0"
        raise ConfigError(
            f"weights: {came}; allowed: finite numbers that are not negative, one at least above 0."
        )
    return _HashedOnce(map(float, weights))


def weights_in(weights: Weights, d: int) -> Reals:
    """The weights divided by the largest, shape (d,); all 1 for None.

    A positive weight stays positive even if its quotient is too small for a float64.  Raises ``ConfigError``
    unless there are d weights.
    """
    check_number(weights, d)
    if weights is None:
        return np.ones(d)
    w = np.array(weights)
    # A coordinate of positive weight is sent, however small the ratio.
    return np.maximum(w / w.max(), np.where(w > 0, ulp(0.0), 0.0))


def check_number(weights: Weights, d: int) -> None:
    """Raise ``ConfigError`` unless there are d weights, or none are given."""
    if weights is not None and len(weights) != d:
        relation = "exceeds" if len(weights) > d else "falls short of"
        raise ConfigError(
            f"the number of weights, {len(weights)}, {relation} the dimension d={d}: give one for each "
            "coordinate, or none."
        )
