"""Measuring a run: the gradients that methods ask for, timed and checked; f and ∇f for the record."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, sqrt

import numpy as np

from mpicomp.clock import Clock
from mpicomp.coding.bits import Bytes
from mpicomp.compressors.base import Array
from mpicomp.errors import DivergedError
from mpicomp.problems.base import Objective
from mpicomp.transports import Transport


class Measured(Objective):
    """An objective whose gradients are timed, and refused unless finite."""

    def __init__(self, f: Objective, clock: Clock) -> None:
        self._f, self._clock = f, clock

    def value(self, x: Array) -> float:
        return self._f.value(x)

    def grad(self, x: Array) -> Array:
        with self._clock.phase("gradient"):
            g = self._f.grad(x)
        # A sum that is finite has finite terms; the converse is only checked when it fails.
        if not isfinite(g.sum()) and not np.isfinite(g).all():
            raise DivergedError(f"the gradient is not finite at |x| = {sqrt(np.sum(x * x)):.3g}.")
        return g


def measure(transport: Transport, objectives: dict[int, Objective], x: Array) -> tuple[float, float] | None:
    """f(x) and |∇f(x)|² on the server, None elsewhere; collective.  Summed in worker order."""

    def own() -> Iterator[tuple[int, Bytes]]:
        for i, f in objectives.items():
            yield i, np.concatenate([[f.value(x)], f.grad(x)]).view(np.uint8)

    total = np.zeros(x.size + 1)
    for _, measurement in transport.observe(own()):
        total += measurement.view(np.float64)
    if not transport.is_server:
        return None
    total /= transport.n
    return float(total[0]), float(np.sum(total[1:] ** 2))
