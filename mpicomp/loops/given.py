"""One worker's objective f_i for one step, made from the gradient or function that the user's loop gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.clock import Clock
from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.base.given_arrays import is_finite
from mpicomp.keys import Stream
from mpicomp.loops.packing import Packing
from mpicomp.problems.objective import Objective
from mpicomp.runtime.measure import Measured


class Given(Objective):
    """One worker's f_i: its gradient at one point, a function that returns gradients, or an ``Objective``.

    A function takes a point and returns f_i's gradient there, both as arrays like those of the packing.  It
    must use the same samples in all calls of one step.
    """

    def __init__(self, worker: int, packing: Packing, clock: Clock) -> None:
        self.worker, self._packing, self._clock = worker, packing, clock
        self._at: Array | None = None
        self.gradient: Array | None = None
        self._source: Callable[[Any], Any] | Measured | None = None
        self._given: Objective | None = None  # the objective given last, and
        self._objective: Objective = self  # .. the same on the device

    def give(self, what: Any, point: Array) -> None:
        """Set f_i for one step, in which the method's first gradient is at ``point``, shape (d,).

        what  a gradient at ``point``, a function of a point, or an ``Objective``

        Raises ``ConfigError`` if arrays do not match the packing, ``DivergedError`` if the gradient is not
        finite.
        """
        self._at, self._source, self.samples = point, None, None
        if isinstance(what, Objective):
            if what is not self._given:
                self._given, self._objective = what, what.on_device()
            self._source = Measured(self._objective, self._clock, self.worker)
            self.samples = what.samples
            self.gradient = None  # asked for when needed: perhaps on a batch
            return
        if callable(what):
            self._source = what
            what = self._call(what, point)
        gradient = self._packing.pack(what)
        if not is_finite(gradient):
            beyond = self._packing.is_beyond(what)
            said = "has magnitudes beyond float32, the precision of like" if beyond else "is not finite"
            raise DivergedError(f"worker {self.worker}: the gradient {said}.")
        self.gradient = gradient

    def value(self, x: Array) -> float:
        if isinstance(self._source, Measured):
            return self._source.value(x)
        raise ConfigError("a gradient alone has no value f_i(x).")

    def grad(self, x: Array) -> Array:
        if self.gradient is not None and self._is_point(x):
            return self.gradient
        if isinstance(self._source, Measured):
            return self._source.grad(x)
        if self._source is None:
            raise ConfigError(
                "the method asks for a gradient at another point than the one where one was given: "
                "give a function of x, and let the method's class have needs_function = True."
            )
        gradient = self._packing.pack(self._call(self._source, x))
        return Measured.check(gradient, x)

    def batch_grad(self, x: Array, b: int, stream: Stream) -> Array:
        if isinstance(self._source, Measured):
            return self._source.batch_grad(x, b, stream)
        raise ConfigError(
            "the method has a batch, but the samples are yours to choose: leave batch out, and give the "
            "gradient on a batch; or give an mpicomp.Objective, which has its own."
        )

    def smoothness_matrix(self) -> Array:
        if isinstance(self._source, Measured):
            return self._source.smoothness_matrix()
        raise ConfigError(
            "the method asks for f_i's smoothness matrix, which gradients do not have: give an "
            "mpicomp.Objective with one, or take the method without the plus."
        )

    def _is_point(self, x: Array) -> bool:
        """Whether x is the point of the gradient that was given."""
        return x is self._at or (self._at is not None and bool(np.array_equal(x, self._at)))

    def _call(self, function: Callable[[Any], Any], x: Array) -> Any:
        with self._clock.phase("gradient"):
            return function(self._packing.unpack(x))
