"""Measuring a run: the gradients that methods ask for, timed and checked; f and ∇f for the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, sqrt
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from mpicomp import kernels
from mpicomp.base.bits import Bytes
from mpicomp.base.clock import Clock
from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.base.given_arrays import refuse_mask
from mpicomp.compressors.base import Array
from mpicomp.keys import Stream
from mpicomp.problems.base import Objective
from mpicomp.transports import Transport


@dataclass
class Meter:
    """One worker's gradient cost and compression error, summed over the rounds.

    epochs  passes over its samples; where they are drawn afresh, the number drawn
    error   |e|² of what error feedback holds back after each round, where the method has it
    """

    epochs: float = 0.0
    error: float = 0.0

    def owe(self, residual: Array | None) -> None:
        """Add one round's error."""
        if residual is not None:
            self.error += float(np.sum(residual * residual))


class Measured(Objective):
    """An objective whose gradients are timed, counted, and refused unless they are finite vectors in R^d.

    The iterate is the run's and a gradient is the caller's to keep: the objective gets x read-only, cannot
    write into an array any more that it has handed out, and is refused if it hands one out twice.  (Arrays
    on a device have no such lock: there only the last is noticed.)
    """

    def __init__(self, f: Objective, clock: Clock, worker: int) -> None:
        self.f, self.samples, self.meter, self._clock, self.worker = f, f.samples, Meter(), clock, worker
        self._observed = f  # the objective whose value and gradient are for the record
        self._last: Array | None = None

    def value(self, x: Array) -> float:
        return _number(self._asked(self.f.value, x))

    def grad(self, x: Array) -> Array:
        self.meter.epochs += 1
        with self._clock.phase("gradient"):
            g = self._asked(self.f.grad, x)
        return self._given(g, x)

    def batch_grad(self, x: Array, b: int, stream: Stream) -> Array:
        self.meter.epochs += b / (self.samples or 1)
        with self._clock.phase("gradient"):
            g = self._asked(self.f.batch_grad, x, b, stream)
        return self._given(g, x)

    def smoothness_matrix(self) -> Array:
        with self._clock.phase("gradient"):
            return self.f.smoothness_matrix()

    def observe_samples(self, m: int, stream: Stream) -> None:
        """Take f and ∇f for the record over the m samples that ``stream`` names, or all if there are fewer.

        Raises ``ConfigError`` if the objective has no samples.
        """
        if self.samples is None:
            raise ConfigError(
                f"observe={m}, and {type(self.f).__name__} has no samples to observe f on. "
                "Give observe='full' or observe='never'."
            )
        if m < self.samples:
            self._observed = self.f.sampled(m, stream)

    def observed_value(self, x: Array) -> float:
        """The value for the record."""
        return _number(self._asked(self._observed.value, x))

    def observed_grad(self, x: Array) -> Array:
        """The gradient for the record: neither timed nor counted, and the objective's to use again."""
        return self.check(self._asked(self._observed.grad, x), x)

    def _given(self, g: Array, x: Array) -> Array:
        """The gradient g, checked, and the caller's to keep."""
        self.check(g, x)
        if self._last is not None and np.may_share_memory(g, self._last):
            raise ConfigError("the gradient is in the array handed out before; return a new one each time.")
        self._last = g
        return g if kernels.on_device(g) else _taken(g)

    def _asked(self, function: Callable[..., Any], x: Array, *others: Any) -> Any:
        """``function(x, *others)``, with x read-only.  Raises ``ConfigError`` if it writes into x."""
        if not kernels.on_device(x):
            x = x.view()
            x.flags.writeable = False
        try:
            return function(x, *others)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise ConfigError(
                f"{type(self.f).__name__} writes into x, or into a gradient that it has returned: these are "
                "the run's. Write into a copy (x = x.copy(), or x = 0.5 * x instead of x *= 0.5), and return "
                "a new array each time."
            ) from error

    @staticmethod
    def check(g: Array, x: Array) -> Array:
        """Return g.  Raises ``ConfigError`` for a wrong type or shape, ``DivergedError`` if not finite."""
        refuse_mask("the gradient", g)
        if not isinstance(g, type(x)) or g.shape != x.shape or not is_float(g):
            what = f"shape {g.shape}, type {g.dtype}" if isinstance(g, type(x)) else type(g).__name__
            raise ConfigError(
                f"grad returned {what}; expected floats of at most 64 bits, an array of shape {x.shape}."
            )
        # A sum that is finite has finite terms; the converse is only checked when it fails.
        if not isfinite(g.sum()) and not np.isfinite(g).all():
            raise DivergedError(f"the gradient is not finite at |x| = {sqrt(np.sum(x * x)):.3g}.")
        return g


def _number(value: Any) -> float:
    """What an objective returned as f_i(x).  Raises ``ConfigError`` unless it is one real number."""
    refuse_mask("the value", value)
    if isinstance(value, Real) or (getattr(value, "shape", None) == () and not np.iscomplexobj(value)):
        return float(value)
    shape = f" of shape {value.shape}" if hasattr(value, "shape") else ""
    raise ConfigError(f"value returned a {type(value).__name__}{shape}; expected one real number.")


def is_float(a: Array) -> bool:
    """Whether a message can carry these numbers: floats of no more than 64 bits."""
    return a.dtype.kind == "f" and a.dtype.itemsize <= 8


def _taken(g: Array) -> Array:
    """g as an array that nobody else can write into: without a copy where g itself can be locked."""
    if g.base is not None or not g.flags.writeable:
        return g.copy()
    ours = g.view()
    g.flags.writeable = False  # the view stays writable
    return ours


class Measurement(NamedTuple):
    """f and its gradient's norms at a model x, on the host, and the mean of the workers' meters."""

    f: float | None  # None, as both norms of gradients, where f is not observed
    grad_norm_sq: float | None  # |∇f(x)|²
    epochs: float
    error: float
    # The mean of |∇f_i(x)|², which is not small where f is stationary but the f_i are not.
    local_norm_sq: float | None
    x: Array

    @property
    def x_norm(self) -> float:
        """|x|, summed by ``np.sum``: the last bits of a BLAS norm may depend on the number of threads."""
        return sqrt(np.sum(self.x.astype(np.float64) ** 2))


def measure(
    transport: Transport,
    objectives: dict[int, Measured],
    x: Array,
    check: Callable[[], None],
    values: bool = True,
) -> Measurement | None:
    """The measurement on the server, None elsewhere; collective.  Summed in worker order.

    ``check`` raises if this rank has no iterate to measure at.  Without ``values`` f and ∇f are not computed.
    """

    total, local = np.zeros(3 + x.size if values else 2), 0.0

    def take(i: int, measurement: Bytes) -> None:
        nonlocal total, local
        one = measurement.view(np.float64)
        total += one
        local += float(np.sum(one[3:] ** 2))

    with transport.observe(take) as send:
        for i, f in objectives.items():
            check()
            meters = np.array([f.meter.epochs, f.meter.error])
            try:
                message = np.concatenate([meters, *(_seen(f, x) if values else ())]).view(np.uint8)
            except DivergedError as diverged:
                raise DivergedError(f"worker {f.worker}: {diverged}") from None
            send(i, message)
    if not transport.is_server:
        return None
    total /= transport.n
    epochs, error = float(total[0]), float(total[1])
    model = kernels.to_host(x)
    if not values:
        return Measurement(None, None, epochs, error, None, model)
    norm_sq = float(np.sum(total[3:] ** 2))
    return Measurement(float(total[2]), norm_sq, epochs, error, local / transport.n, model)


def _seen(f: Measured, x: Array) -> tuple[Array, Array]:
    """The value, shape (1,), and the gradient for the record.  Raises ``DivergedError`` if not finite."""
    value = f.observed_value(x)
    if not isfinite(value):
        raise DivergedError(f"f is {value} at |x| = {sqrt(np.sum(x * x)):.3g}.")
    return np.array([value]), kernels.to_host(f.observed_grad(x))
