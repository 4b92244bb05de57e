"""EF21 with steps of a given length: normalised EF21 and EF21-SGDM, sign steps, EF21-Muon."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Annotated, Any, ClassVar, Self

from mpicomp.base.checks import check_positive, check_positive_integer, check_probability
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Parts
from mpicomp.compressors import Compressor, Contractive, Lossless
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, Choice, PartsOfX, StepSize, Value
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.batch_theory import require_bounded_variance
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.lmo import NORMS, is_matrix, squared_ratio, steepest
from mpicomp.methods.support.starts import EstimateStart, uplink_from
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.base import Constants, Objective

DECREASING = "decreasing"


def _check_rate(name: str, value: Any) -> None:
    try:
        check_probability(name, value)
    except ConfigError:
        raise ConfigError(
            f"{name}={value!r}; allowed: a number above 0 and at most 1, or {DECREASING!r}."
        ) from None


def _check_gap(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name}={value!r}; allowed: a number above 0, or None.")
    check_positive(name, value, "a bound on f(x⁰) - f*")


Norm = Annotated[str, Choice(NORMS)]
RateOrDecreasing = Annotated[Any, Value(_check_rate, also=(DECREASING,))]
Horizon = Annotated[int | None, Value(check_positive_integer, also=(None,))]
Gap = Annotated[float | None, Value(_check_gap, also=(None,))]


@dataclass(frozen=True)
class EF21LMO(AveragingMethod, EstimatingMethod):
    """EF21-SGDM whose steps have the length γ in a norm, whatever the size of the gradient::

        worker i   v_i^k = (1 - η) v_i^{k-1} + η s_i^k                       (v_i^0 = s_i^0)
                   c_i = C(v_i^k - h_i^{k-1});   h_i^k = h_i^{k-1} + c_i     (h_i^0 = s_i^0)
        all        h^k = h^{k-1} + mean c_i;   g^k = D(h^k);   x^{k+1} = x^k - γ g^k

    s_i^k is the gradient of f_i at x^k on a batch.  s_i^0 is sent whole; with start="compressed",
    h_i^0 = C(s_i^0) is sent.  h = mean h_i in every round.  eta = 1 is EF21 with these steps.

    norm="l2"        D(h) = h/|h|: normalised EF21 and EF21-SGDM
    norm="linf"      D(h) = the signs of h
    norm="spectral"  D(H) = U V' for each part H = U Σ V' of x with two axes or more, its first axis by all
                     others; the signs of h for other parts: EF21-Muon, with the server's message whole

    -D(h) is where ⟨h, s⟩ is least among all s with ‖s‖ ≤ 1: a linear minimisation oracle (LMO).  D(0) = 0.
    g is the direction D(h), so an ``Aggregator``'s caller takes the step x - γ g by SGD without momentum.

    Any γ > 0 is allowed, and no constant of f is needed: γ of the order 1/√T gives 1/√T after T rounds, where
    EF21 with a γ too large diverges.  A constant γ ends at a distance of about γ.

    eta="decreasing"  η_k = (2/(k+2))^{1/2}, and g^k = (2/(k+2))^{3/4} D(h^k) in round k: neither T nor the
    noise has to be known.
    theory: the γ that minimises the bound below for T = ``rounds`` and F = ``gap``,
    γ = √(F/(T ρ² (L/2 + 2M))), where the variance of samples is at most σ² for all x.  Raises ``ConfigError``
    for other batches, without ``rounds`` and ``gap``, and for eta="decreasing".

    Let ‖.‖_* be the dual norm, and ρ the least number with ‖y‖_* ≤ ρ |y|: ρ² is 1 for "l2", d for "linf", and
    for "spectral" the sum of the shorter sides of all matrices and the sizes of other parts.  With
    M = L (1-η)/η + Q mean L_i, Q = √(1-α)/(1 - √(1-α)), f(x⁰) - f* ≤ F, from start="gradient",

        (1/T) Σ E‖∇f(x^k)‖_* ≤ F/(γT) + γ ρ² (L/2 + 2M) + 2ρN,

    where N is σ/√(bn) (√η + 1/(ηT)) + √2 Q η σ/√b on batches of b, and 0 with full gradients.
    start="compressed" adds 2ρ Q mean|s_i^0|/T.  The left side is at least (1/T) Σ E|∇f(x^k)|.

    Proof.  A step has |x^+ - x| ≤ ρ γ.

    1. f^+ ≤ f - γ ⟨∇f, D(h)⟩ + L ρ² γ²/2, and ⟨∇f, D(h)⟩ = ‖h‖_* + ⟨∇f - h, D(h)⟩ ≥ ‖∇f‖_* - 2 ‖∇f - h‖_*.
    2. mean v_i - ∇f is (1-η) of its last value and of the gradient's change, plus η times the noise; its
       expected ‖.‖_* has a mean over k of at most ρ² L γ (1-η)/η plus noise.
    3. v_i is an average of gradients, in which one j rounds old has the weight η (1-η)^j; so |v_i^+ - v_i| is
       at most ρ L_i γ plus noise.  E|v_i - h_i| shrinks by √(1-α) after that change has been added: it is at
       most Q ρ L_i γ plus noise.
    4. Sum 1 over k, with ‖∇f - h‖_* at most that of 2 plus ρ times the mean of 3.

    For norm="spectral" the method has to be bound before it is used; a run binds it to the parts of its
    problem.  ``bound`` raises ``ConfigError`` if no part is a matrix.

    Differences from the papers: the mean is broadcast and every rank takes the step; the bound, with its γ,
    is the one proved here; EF21-Muon has a norm for each layer, here one γ is for all.

    norm    the norm in which a step has the length γ: "l2", "linf" or "spectral"
    eta     the weight η of the new gradient in the average v_i, or "decreasing"
    rounds  the number T of rounds for which theory is the best γ; None unless gamma is "theory"
    gap     F, a bound on f(x⁰) - f*, from which theory takes γ: for f ≥ 0, f(x⁰) will do
    """

    C: Contractive
    gamma: StepSize = "theory"
    norm: Norm = "l2"
    eta: RateOrDecreasing = 1.0
    rounds: Horizon = None
    gap: Gap = None
    batch: BatchSize = None
    down: Lossless = Lossless()
    start: EstimateStart = "gradient"
    parts: PartsOfX = field(default=None, repr=False)  # those of x for "spectral"; ``bound`` sets it

    recalled: ClassVar[str] = "the powers of 2/(k+2) of the steps for eta=decreasing"
    paper: ClassVar[str] = (
        "Normalised EF21, arXiv 2410.16871; parameter-agnostic, arXiv 2511.14501; EF21-Muon, arXiv 2510.00643"
    )

    @dataclass
    class Replica:
        x: Array
        g: Array
        h: Array

    @dataclass
    class Worker:
        v: Array
        h: Array

    def bound(self, parts: Parts) -> Self:
        method = super().bound(parts)
        if self.norm != "spectral":
            return method
        if not any(is_matrix(part) for part, _ in parts):
            raise ConfigError(
                f"EF21LMO(norm='spectral') is for matrices, and no part has two axes; the parts are {parts}. "
                "Take norm='linf', which is the same here."
            )
        known: dict[str, Any] = {"parts": parts}
        return replace(method, **known)

    def replica(self, x0: Array) -> Replica:
        if self.norm == "spectral" and (self.parts is None or self.parts.size != x0.size):
            known = "no parts" if self.parts is None else f"parts of {self.parts.size} entries"
            raise ConfigError(
                f"EF21LMO(norm='spectral') knows {known} of the dimension d={x0.size}. Call bound(parts) "
                "first, as a run does with the parts of its problem."
            )
        return super().replica(x0)

    def uplink(self, key: Key) -> Compressor:
        return uplink_from(self.start, self.C, key)

    def _rate(self, key: Key) -> float:
        """η in the round of ``key``."""
        return sqrt(2 / (key.round + 2)) if self.eta == DECREASING else self.eta

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        s, eta = gradient(f, r.x, self.batch, key), self._rate(key)
        w.v = s if key.round == 0 else (1 - eta) * w.v + eta * s  # v_i^k
        C = self.uplink(key)
        c = C.compress_difference(w.v, w.h, key)  # c_i = C(v_i^k - h_i^{k-1})
        C.decompress_add(c, w.h, key)  # h_i^k = h_i^{k-1} + c_i
        return Message(c)

    def residual(self, w: Worker) -> Array:
        return w.v - w.h

    def estimate(self, r: Replica, broadcast: Message, key: Key) -> None:
        self.down.decompress_add(broadcast.m, r.h, key)  # h^k = h^{k-1} + mean c_i
        r.g[:] = steepest(self.norm, r.h, self.parts)  # g^k = D(h^k)
        if self.eta == DECREASING:
            eta = self._rate(key)
            r.g *= eta * sqrt(eta)  # (2/(k+2))^{3/4}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        if self.eta == DECREASING:
            raise ConfigError("EF21LMO(eta='decreasing') has no theory step size: give gamma as a number.")
        if self.rounds is None or self.gap is None:
            raise ConfigError(
                "EF21LMO takes its theory from the number of rounds and a bound on f(x⁰) - f*: give rounds "
                "and gap; or gamma as a number, which may be any above 0."
            )
        require_bounded_variance(self, c, self.batch)
        root = sqrt(1 - self.C.alpha(d, n))
        M = c.L * (1 - self.eta) / self.eta + root / (1 - root) * sum(c.L_i) / n
        ratio = squared_ratio(self.norm, d, self.parts)
        return {"gamma": sqrt(self.gap / (self.rounds * ratio * (c.L / 2 + 2 * M)))}
