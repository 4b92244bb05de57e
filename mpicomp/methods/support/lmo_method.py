"""Methods with EF21-SGDM's workers, whose steps along the estimate h have a given length."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Annotated, Any, ClassVar, Self

from mpicomp.base.arrays import Array
from mpicomp.base.checks import check_positive, number
from mpicomp.base.errors import ConfigError, not_allowed
from mpicomp.base.parts import Parts, check_parts
from mpicomp.compressors import Compressor, Contractive
from mpicomp.keys import Key
from mpicomp.methods.base import Message, start
from mpicomp.methods.parameters import BatchSize, Choice, PartsOfX, PositiveIntegerOrNone, Value
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.batch_theory import require_bounded_variance
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.gradient_averages import HEAVY_BALL, IGT, MOMENTA, MVR, decreasing
from mpicomp.methods.support.lmo import NORMS, POLARS, squared_ratio, steepest
from mpicomp.methods.support.starts import uplink_from
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective

DECREASING = "decreasing"
_check_rate = number(f"a number above 0 and at most 1, or {DECREASING!r}", lambda v: 0 < v <= 1)


def _check_gap(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise not_allowed(name, repr(value), "a number above 0, or None")
    check_positive(name, value, "a bound on f(x⁰) - f*")


Norm = Annotated[str, Choice(NORMS)]
Polar = Annotated[str, Choice(POLARS)]
GradientAverage = Annotated[str, Choice(MOMENTA)]
RateOrDecreasing = Annotated[Any, Value(_check_rate, also=(DECREASING,))]
Gap = Annotated[float | None, Value(_check_gap, also=(None,))]


class LMOMethod(AveragingMethod, EstimatingMethod):
    """v_i^k is an average of gradients of f_i on batches, one of ``gradient_averages``; h = mean h_i::

        worker i   c_i = C(v_i^k - h_i^{k-1});   h_i^k = h_i^{k-1} + c_i     (h_i^0 = v_i^0)

    Subclasses are dataclasses with the fields below.  Their ``estimate`` ends with ``keep_point``.
    """

    C: Contractive
    norm: Norm
    polar: Polar
    eta: RateOrDecreasing
    momentum: GradientAverage
    rounds: PositiveIntegerOrNone
    gap: Gap
    batch: BatchSize
    start: str
    parts: PartsOfX

    starts_at_x0: ClassVar[tuple[str, ...]] = ("previous",)
    WithPrevious: ClassVar[type]  # the replica with x^{k-1}, as ``previous``, where ``momentum`` needs it

    @dataclass
    class Worker:
        v: Array
        h: Array

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.polar != "svd" and self.norm != "spectral":
            raise ConfigError(
                f"{type(self).__name__}: polar={self.polar!r} with norm={self.norm!r}, which has no polar "
                "factors. Take norm='spectral', or leave polar out."
            )

    @property
    def needs_function(self) -> bool:  # type: ignore[override]
        return self.momentum == MVR  # at two points

    @property
    def elsewhere(self) -> str:  # type: ignore[override]
        return f"momentum={IGT!r}" if self.momentum == IGT else ""

    def bound(self, parts: Parts) -> Self:
        method = super().bound(parts)
        if self.norm != "spectral":
            return method
        if not any(part.is_matrix for part, _ in parts):
            raise ConfigError(
                f"{type(self).__name__}(norm='spectral') is for matrices, and no part has two axes; the "
                f"parts are {parts}. Take norm='linf', which is the same here."
            )
        return replace(method, parts=parts)  # type: ignore[call-arg]  # subclasses have this field

    def replica(self, x0: Array) -> Any:
        if self.norm == "spectral":
            check_parts(f"{type(self).__name__}(norm='spectral')", self.parts, x0.size)
        record = self.Replica if self.momentum == HEAVY_BALL else self.WithPrevious
        return start(record, x0, (self.iterate, *self.starts_at_x0))

    def uplink(self, key: Key) -> Compressor:
        return uplink_from(self.start, self.C, key)

    def _rate(self, key: Key) -> float:
        """η in the round of ``key``."""
        return decreasing(self.momentum, key.round)[0] if self.eta == DECREASING else self.eta

    def point(self, r: Any, key: Key) -> Array:
        eta = self._rate(key)
        if self.momentum != IGT or eta == 1:
            return super().point(r, key)
        return r.x + ((1 - eta) / eta) * (r.x - r.previous)  # x^k + ((1-η)/η) (x^k - x^{k-1})

    def keep_point(self, r: Any) -> None:
        """Let x be x^{k-1} of the next round, where ``momentum`` needs it; call it before the step."""
        if self.momentum != HEAVY_BALL:
            r.previous[:] = r.x

    def worker_step(self, w: Worker, r: Any, f: Objective, key: Key) -> Message:
        s, eta = gradient(f, self.point(r, key), self.batch, key), self._rate(key)
        if key.round == 0:
            w.v = s
        elif self.momentum == MVR:  # η s_i(x^k) + (1-η) s_i(x^k) is s_i(x^k), without rounding
            w.v = (1 - eta) * (w.v - gradient(f, r.previous, self.batch, key)) + s
        else:
            w.v = (1 - eta) * w.v + eta * s  # v_i^k
        C = self.uplink(key)
        c = C.compress_difference(w.v, w.h, key)  # c_i = C(v_i^k - h_i^{k-1})
        C.decompress_add(c, w.h, key)  # h_i^k = h_i^{k-1} + c_i
        return Message(c)

    def residual(self, w: Worker) -> Array:
        return w.v - w.h

    def direction(self, h: Array, key: Key) -> Array:
        """D(h), times a power of 2/(k+2) in round k for eta="decreasing", in double precision."""
        D = steepest(self.norm, h, self.parts, self.polar)
        if self.eta == DECREASING:
            D *= decreasing(self.momentum, key.round)[1]
        return D

    def best_step(self, c: Constants, d: int, n: int, plain: float = 0.5, spread: float = 1.0) -> float:
        """The γ that minimises F/(γT) + γ ρ² (``plain`` L + 2 ``spread`` M), M = L (1-η)/η + Q mean L_i.

        Raises ``ConfigError`` where this bound is not proved, and without ``rounds`` T and ``gap`` F.
        """
        name = type(self).__name__
        if self.momentum != HEAVY_BALL:
            raise ConfigError(
                f"{name}(momentum={self.momentum!r}) has no theory step size: give gamma as a number, or "
                f"take momentum={HEAVY_BALL!r}."
            )
        if self.eta == DECREASING:
            raise ConfigError(f"{name}(eta='decreasing') has no theory step size: give gamma as a number.")
        if self.polar != "svd":
            raise ConfigError(
                f"{name}(polar={self.polar!r}) has no theory step size: the length of its steps is only near "
                "γ. Give gamma as a number, or take polar='svd'."
            )
        if self.rounds is None or self.gap is None:
            raise ConfigError(
                f"{name} takes its theory from the number of rounds and a bound on f(x⁰) - f*: give rounds "
                "and gap; or gamma as a number, which may be any above 0."
            )
        require_bounded_variance(self, c, self.batch)
        M = c.L * (1 - self.eta) / self.eta + lag(self.C.alpha(d, n)) * c.L_mean
        ratio = squared_ratio(self.norm, d, self.parts)
        return sqrt(self.gap / (self.rounds * ratio * (plain * c.L + 2 * spread * M)))


def lag(alpha: float) -> float:
    """√(1-α)/(1 - √(1-α)): a bound on E|e^k| for e^{k+1} = q - C(q), q = e^k + s^k, E|s^k| ≤ 1 and e^0 = 0.

    C has the constant α: E|C(q) - q|² ≤ (1-α)|q|².
    """
    root = sqrt(1 - alpha)
    return root * (1 + root) / alpha  # the same, where 1 - root would round to 0
