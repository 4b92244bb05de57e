"""``gamma="auto"``: the server sets the step size in every round, by the slope of f along the last step.

Every worker adds a number to its message, and the server adds one to its broadcast::

    worker i   sends a_i = <∇f_i(x^k), g^{k-1}>/|g^{k-1}|² too, 1 to 9 bytes (``support.fixed_point``)
    server     changes γ by mean a_i (``support.control``), and broadcasts γ too, 2 bytes
    all        x^{k+1} = x^k - γ g^k

The gradient is the one that the method asks for anyway.  Near the minimum the a_i may be large, and their
mean is not: a_i has an absolute precision.  In round 0 a worker sends log2(|∇f_i(x⁰)|/max(1, |x⁰|)) in place
of a slope; the first γ is 1/100 of the inverse of the mean of these lengths.
"""

from __future__ import annotations

from copy import copy
from dataclasses import field, fields, make_dataclass
from functools import cache
from math import inf, log2, nan, sqrt
from typing import Any, ClassVar

import numpy as np

from mpicomp.base.errors import ConfigError
from mpicomp.codecs.messages import Natural, Short, short
from mpicomp.compressors.base import Array
from mpicomp.kernels import add_scaled
from mpicomp.keys import Key, Stream
from mpicomp.methods.base import Accumulator, Method
from mpicomp.methods.parameters import is_auto
from mpicomp.methods.support.control import StepControl
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.fixed_point import of_natural, to_natural
from mpicomp.problems.base import Objective


def with_auto_step(method: Method) -> Method:
    """The method as it plays rounds: ``method`` itself, unless its step size is "auto"."""
    if not is_auto(method.step):
        return method
    adapting = copy(method)
    object.__setattr__(adapting, "__class__", _adapting(type(method)))
    return adapting


@cache
def _adapting(method: type[Method]) -> type[Method]:
    """The subclass of a method's class whose messages carry slopes and step sizes."""
    members = {
        "plain": method,
        "Server": make_dataclass("Server", [], bases=(StepControl, method.Server)),
        "Up": make_dataclass("Up", [("slope", Natural, field(default=Natural(0)))], bases=(method.Up,)),
        "Down": make_dataclass("Down", [("gamma", Short, field(default=Short(nan)))], bases=(method.Down,)),
    }
    return type(method.__name__, (_AutoStep, method), members)


class _AutoStep(EstimatingMethod):
    """The steps of a method with the step size "auto": those of its own class ``plain``, and γ."""

    plain: ClassVar[Any]

    def worker_step(self, w: Any, r: Any, f: Objective, key: Key) -> Any:
        asked = _Asked(f, self.point(r, key))
        up = self.plain.worker_step(self, w, r, asked, key)
        number = asked.log_size() if key.round == 0 else asked.slope(r.g)
        return self.Up(**_values(up) | {"slope": to_natural(number)})

    def server_step(self, s: Any, r: Any, key: Key) -> Accumulator:
        return _Adapting(self, s, self.plain.server_step(self, s, r, key), key)

    def received(self, broadcast: Any, r: Any, key: Key) -> Any:
        return self.Down(**_values(super().received(broadcast, r, key)) | {"gamma": broadcast.gamma})

    def replica_step(self, r: Any, broadcast: Any, key: Key) -> None:
        self.estimate(r, broadcast, key)
        add_scaled(r.x, r.g, -broadcast.gamma)

    def paper_bits(self, up: Any, d: int, key: Key) -> int:
        return self.plain.paper_bits(self, up, d, key) + 32

    def paper_bits_down(self, broadcast: Any, d: int, key: Key) -> int:
        return self.plain.paper_bits_down(self, broadcast, d, key) + 32


class _Asked(Objective):
    """The objective f, which keeps the gradient that is asked for at ``point``."""

    def __init__(self, f: Objective, point: Array) -> None:
        self.f, self.samples, self._point = f, f.samples, point
        self._gradient: Array | None = None

    def value(self, x: Array) -> float:
        return self.f.value(x)

    def grad(self, x: Array) -> Array:
        return self._kept(self.f.grad(x), x)

    def batch_grad(self, x: Array, b: int, stream: Stream) -> Array:
        return self._kept(self.f.batch_grad(x, b, stream), x)

    def smoothness_matrix(self) -> Array:
        return self.f.smoothness_matrix()

    def _kept(self, g: Array, x: Array) -> Array:
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
        g = self._known
        size = sqrt(_dot(g, g)) / max(1.0, sqrt(_dot(self._point, self._point)))
        return log2(size) if size != 0 else -inf

    def slope(self, g: Array) -> float:
        """<∇f_i(x), g>/|g|² at ``point``, where a step along -g has led; NaN if g = 0: x has not moved."""
        square = _dot(g, g)
        return _dot(self._known, g) / square if square > 0 else nan


class _Adapting(Accumulator):
    """The server step of ``method``, which takes the workers' slopes too, and adds γ to the broadcast."""

    def __init__(self, method: Method, control: StepControl, step: Accumulator, key: Key) -> None:
        self._method, self._control, self._step, self._key = method, control, step, key
        self._sum, self._count = 0.0, 0

    def take(self, key: Key, up: Any) -> None:
        self._step.take(key, up)
        number = of_natural(up.slope)
        if key.round == 0:
            number = 2.0 ** min(number, 1023.0)  # which may be infinite
        self._sum += number
        self._count += 1

    def flush(self) -> None:
        self._step.flush()

    def close(self) -> Any:
        down, mean = self._step.close(), self._sum / self._count
        if self._key.round == 0:
            self._control.begin(mean)
        else:
            self._control.update(mean)
        return self._method.Down(**_values(down) | {"gamma": short(self._control.gamma)})


def _dot(x: Any, y: Any) -> float:
    """<x, y>, by ``np.sum``: the last bits of a BLAS product may depend on the number of threads."""
    return float(np.sum(np.multiply(x, y, dtype=np.float64)))


def _values(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(record)}
