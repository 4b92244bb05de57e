"""Record the gradient that a method asks an objective for, for ``gamma="auto"``."""

from __future__ import annotations

from math import inf, log2, nan, sqrt
from typing import Any

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.keys import Stream
from mpicomp.problems.objective import Objective


class Recording(Objective):
    """The objective f, which records the gradient that is asked for at ``point``."""

    def __init__(self, f: Objective, point: Array) -> None:
        self.f, self.samples, self._point = f, f.samples, point
        self._gradient: Array | None = None

    def value(self, x: Array) -> float:
        return self.f.value(x)

    def grad(self, x: Array) -> Array:
        return self._recorded(self.f.grad(x), x)

    def batch_grad(self, x: Array, b: int, stream: Stream) -> Array:
        return self._recorded(self.f.batch_grad(x, b, stream), x)

    def smoothness_matrix(self) -> Array:
        return self.f.smoothness_matrix()

    def _recorded(self, g: Array, x: Array) -> Array:
        if x is self._point:
            self._gradient = g.copy()  # the method may change its own
        return g

    @property
    def _known(self) -> Array:
        if self._gradient is None:
            raise ConfigError(
                "gamma='auto' needs the gradient at the point that the method's point(replica, key) returns, "
                "and this method has not asked for it: ask f for it there, at that array, or give a number."
            )
        return self._gradient

    def log_size(self) -> float:
        """log2(|∇f_i(x)|/max(1, |x|)) at ``point``; minus infinity if the gradient is 0."""
        size = norm(self._known) / max(1.0, norm(self._point))
        return log2(size) if size != 0 else -inf

    def slope(self, v: Array, unit: float) -> float:
        """<∇f_i(x), v>/unit at ``point``; NaN unless ``unit`` is above 0."""
        return dot(self._known, v) / unit if unit > 0 else nan


def dot(x: Any, y: Any) -> float:
    """<x, y>, by ``np.sum``: the last bits of a BLAS product may depend on the number of threads."""
    return float(np.sum(np.multiply(x, y, dtype=np.float64)))


def norm(x: Any) -> float:
    """|x|, summed as ``dot`` does."""
    return sqrt(dot(x, x))
