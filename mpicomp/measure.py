"""Measuring a run: the gradients that methods ask for, timed and checked; f and ∇f for the record."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, sqrt
from typing import NamedTuple

import numpy as np

from mpicomp.clock import Clock
from mpicomp.coding.bits import Bytes
from mpicomp.compressors.base import Array
from mpicomp.errors import ConfigError, DivergedError
from mpicomp.problems.base import Objective
from mpicomp.transports import Transport


class Measured(Objective):
    """An objective whose gradients are timed, and refused unless they are finite vectors in R^d."""

    def __init__(self, f: Objective, clock: Clock) -> None:
        self.f, self._clock = f, clock

    def value(self, x: Array) -> float:
        return self.f.value(x)

    def grad(self, x: Array) -> Array:
        x = x.view()
        x.flags.writeable = False  # the replica is not the objective's to change
        with self._clock.phase("gradient"):
            g = self.f.grad(x)
        return self.check(g, x)

    @staticmethod
    def check(g: Array, x: Array) -> Array:
        """g, if it can be the gradient at x."""
        if not isinstance(g, np.ndarray) or g.shape != x.shape or g.dtype.kind != "f":
            what = f"shape {g.shape}, type {g.dtype}" if isinstance(g, np.ndarray) else type(g).__name__
            raise ConfigError(f"grad returned {what}; expected floats, an array of shape {x.shape}.")
        # A sum that is finite has finite terms; the converse is only checked when it fails.
        if not isfinite(g.sum()) and not np.isfinite(g).all():
            raise DivergedError(f"the gradient is not finite at |x| = {sqrt(np.sum(x * x)):.3g}.")
        return g


class Measurement(NamedTuple):
    """What is seen at an iterate x."""

    f: float
    grad_norm_sq: float  # |∇f(x)|²
    local_norm_sq: float  # mean |∇f_i(x)|², which is not small where f is stationary but the f_i are not


def measure(transport: Transport, objectives: dict[int, Measured], x: Array) -> Measurement | None:
    """The measurement on the server, None elsewhere; collective.  Summed in worker order."""

    def own() -> Iterator[tuple[int, Bytes]]:
        for i, f in objectives.items():
            try:
                value = float(f.value(x))
                if not isfinite(value):
                    raise DivergedError(f"f is {value} at |x| = {sqrt(np.sum(x * x)):.3g}.")
                message = np.concatenate([[value], f.check(f.f.grad(x), x)]).view(np.uint8)
            except DivergedError as error:
                raise DivergedError(f"worker {i}: {error}") from None
            yield i, message

    total, local = np.zeros(x.size + 1), 0.0
    for _, measurement in transport.observe(own()):
        one = measurement.view(np.float64)
        total += one
        local += float(np.sum(one[1:] ** 2))
    if not transport.is_server:
        return None
    total /= transport.n
    return Measurement(float(total[0]), float(np.sum(total[1:] ** 2)), local / transport.n)
