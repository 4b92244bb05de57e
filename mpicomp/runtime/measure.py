"""Time and check the gradients that a method asks for, and measure f and ∇f for the recorded rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.clock import Clock
from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.base.given_arrays import readable, refuse_mask
from mpicomp.keys import Stream
from mpicomp.problems.objective import Objective
from mpicomp.transports import Transport


@dataclass
class Meter:
    """One worker's gradient cost and compression error, summed over the rounds.

    epochs  passes over the worker's samples; for an objective without a fixed set of samples, full gradients
            plus the number of samples drawn
    error   the sum over rounds of |e|², where e is ``Method.residual``; 0 for a method without one
    """

    epochs: float = 0.0
    error: float = 0.0

    @np.errstate(over="ignore", under="ignore")
    def owe(self, residual: Array | None) -> None:
        """Add |residual|² of one round; None adds nothing."""
        if residual is not None:
            self.error += float(np.sum(residual * residual))


class Lent:
    """x, read-only while the objective f has it.  Raises ``ConfigError`` if f writes into it.

    With ``copied`` it is a copy that f may keep.  f may remember the x of its last call, to see whether it is
    asked about another one, and the run's x takes its steps in place: it would equal itself in every call.
    """

    __slots__ = ("_f", "_x")

    def __init__(self, x: Array, f: Objective, copied: bool) -> None:
        self._f = f
        if copied:
            x = x.copy()
        if not kernels.on_device(x):
            x = x.view()
            x.flags.writeable = False
        self._x = x

    def __enter__(self) -> Array:
        return self._x

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, ValueError) and "read-only" in str(error):
            raise ConfigError(
                f"{type(self._f).__name__} writes into x, or into a gradient that it has returned: these are "
                "the run's. Write into a copy (x = x.copy(), or x = 0.5 * x instead of x *= 0.5), and return "
                "a new array each time. (Or it writes into an array of its own that is read-only.)"
            ) from error


class Measured(Objective):
    """Wrap an objective: time and count its gradients, and refuse those that are not finite vectors in R^d.

    The caller may keep a gradient, and the objective must not change x.  So the objective gets x read-only,
    and an array that it returned becomes read-only for it.  It is an error to return the same array twice.
    (Arrays on a device cannot be made read-only: there only returning the same array twice is noticed.)
    """

    def __init__(self, f: Objective, clock: Clock, worker: int) -> None:
        self.f, self.samples, self.meter, self._clock, self.worker = f.told, f.samples, Meter(), clock, worker
        self._own = _of_ones_own(f)
        self._observed = f  # the objective whose value and gradient are recorded in rows
        self._last: Array | None = None

    def value(self, x: Array) -> float:
        with Lent(x, self.f, self._own) as lent:
            return _number(self.f.value(lent))

    def grad(self, x: Array) -> Array:
        self.meter.epochs += 1
        with self._clock.phase("gradient"), Lent(x, self.f, self._own) as lent:
            g = self.f.grad(lent)
        return self._given(g, x)

    def batch_grad(self, x: Array, b: int, stream: Stream) -> Array:
        self.meter.epochs += b / (self.samples or 1)
        with self._clock.phase("gradient"), Lent(x, self.f, self._own) as lent:
            g = self.f.batch_grad(lent, b, stream)
        return self._given(g, x)

    def smoothness_matrix(self) -> Array:
        with self._clock.phase("gradient"):
            return self.f.smoothness_matrix()

    def observe_samples(self, m: int, stream: Stream) -> None:
        """Record f and ∇f on m samples drawn by ``stream``, or on all samples if there are at most m.

        Raises ``ConfigError`` if the objective has no samples.
        """
        if self.samples is None:
            raise ConfigError(
                f"observe={m}, and {type(self.f).__name__} has no samples to observe f on. "
                "Give observe='full' or observe='never'."
            )
        if m < self.samples:
            self._observed = self._observed.sampled(m, stream)

    def observe(self, x: Array) -> tuple[Array, Array]:
        """The value, shape (1,), and gradient, shape (d,), at x to record in a row, on the host.

        They are not timed and not counted, and f may reuse its array.

        Raises ``DivergedError`` if they are not finite.
        """
        with Lent(x, self._observed, self._own) as lent:
            pair = self._observed.value_and_grad(lent)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ConfigError(
                f"value_and_grad returned a {type(pair).__name__}; expected a pair, the value and the "
                "gradient."
            )
        value, g = pair
        if not isfinite(value := _number(value)):
            raise DivergedError(f"f is {value} at |x| = {sqrt(np.sum(x * x)):.3g}.")
        return np.array([value]), kernels.to_host(self._checked(g, x))

    def _given(self, g: Array, x: Array) -> Array:
        """Check the gradient g and return it, in the precision of x, as an array that the caller may keep.

        The records of a method have the precision of x: kept in that of g, a checkpoint would not fit them.
        """
        g = self._checked(g, x)
        if self._last is not None and np.may_share_memory(g, self._last):
            raise ConfigError("the gradient is in the array handed out before; return a new one each time.")
        self._last = g
        if g.dtype != x.dtype:
            return self.check(g.astype(x.dtype), x)
        return g if kernels.on_device(g) else _taken(g)

    def _checked(self, g: Array, x: Array) -> Array:
        """``check(g, x)``; its ``ConfigError`` names the worker, for f_i of several lengths."""
        try:
            return self.check(g, x)
        except ConfigError as error:
            raise ConfigError(f"worker {self.worker}: {error}") from None

    @staticmethod
    def check(g: Array, x: Array) -> Array:
        """Return g.  Raises ``ConfigError`` if type or shape are not x's, ``DivergedError`` if not finite."""
        if type(g) is not np.ndarray:
            refuse_mask("the gradient", g)
            if isinstance(g, np.ndarray):  # of a class of its own, with operators of its own
                g = g.view(np.ndarray)
        if not isinstance(g, type(x)) or g.shape != x.shape or not is_float(g):
            what = f"shape {g.shape}, type {g.dtype}" if isinstance(g, type(x)) else type(g).__name__
            raise ConfigError(
                f"grad returned {what}; expected floats of at most 64 bits, an array of shape {x.shape}."
            )
        # ``is_finite`` would cost more than the sum: a round ignores overflows already.
        if not isfinite(g.sum()) and not np.isfinite(g).all():
            raise DivergedError(f"the gradient is not finite at |x| = {sqrt(np.sum(x * x)):.3g}.")
        return g


def _of_ones_own(f: Any) -> bool:
    """Whether f, or an objective in its fields, is of a user's own class."""
    if isinstance(f, Objective):
        return f.of_ones_own or any(map(_of_ones_own, vars(f).values()))
    return isinstance(f, tuple) and any(map(_of_ones_own, f))


def _number(value: Any) -> float:
    """Convert the value that an objective returned.  Raises ``ConfigError`` if it is no real number."""
    refuse_mask("the value", value)
    value = readable(value)
    if isinstance(value, Real) or (getattr(value, "shape", None) == () and not np.iscomplexobj(value)):
        try:
            return float(value)
        except OverflowError:  # of an integer
            return inf
    shape = f" of shape {value.shape}" if hasattr(value, "shape") else ""
    raise ConfigError(f"value returned a {type(value).__name__}{shape}; expected one real number.")


def is_float(a: Array) -> bool:
    """Whether ``a`` has entries that a message can carry: floats of at most 64 bits."""
    return a.dtype.kind == "f" and a.dtype.itemsize <= 8


def _taken(g: Array) -> Array:
    """g as an array that only the caller can write into; copied only if g itself cannot be made read-only."""
    if g.base is not None or not g.flags.writeable:
        return g.copy()
    ours = g.view()
    g.flags.writeable = False  # the view stays writable
    return ours


class Measurement(NamedTuple):
    """f and its gradient's norms at a model x, on the host, and the mean of the workers' meters."""

    f: float | None  # None if f is not observed; then both gradient norms are None too
    grad_norm_sq: float | None  # |∇f(x)|²
    epochs: float
    error: float
    # The mean of |∇f_i(x)|².  It need not be small where ∇f is, unless all ∇f_i are.
    local_norm_sq: float | None
    x: Array

    @property
    @np.errstate(over="ignore", under="ignore")
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
    """Measure f and ∇f at x, shape (d,), by sums in worker order; collective.

    Returns the measurement on rank 0, and None on all other ranks.

    objectives  the objective of each hosted worker
    check       raises an error if this rank has no iterate to measure at
    values      False: f and ∇f are not computed, and only x and the meters are returned

    Raises ``DivergedError`` with the worker's number if its f or ∇f is not finite.
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
                message = np.concatenate([meters, *(f.observe(x) if values else ())]).view(np.uint8)
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
