"""EF21 with steps of a given length: normalised EF21 and EF21-SGDM, sign steps, EF21-Muon."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Contractive, Lossless
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, PartsOfX, PositiveIntegerOrNone, StepSize
from mpicomp.methods.support.estimating import Estimate
from mpicomp.methods.support.lmo_method import (
    Gap,
    GradientAverage,
    LMOMethod,
    Norm,
    Polar,
    RateOrDecreasing,
)
from mpicomp.methods.support.starts import EstimateStart
from mpicomp.problems.constants import Constants


@dataclass(frozen=True)
class EF21LMO(LMOMethod):
    """EF21-SGDM whose steps have the length γ in a norm, whatever the size of the gradient::

        worker i   v_i^k = (1 - η) v_i^{k-1} + η s_i^k                       (v_i^0 = s_i^0)
                   c_i = C(v_i^k - h_i^{k-1});   h_i^k = h_i^{k-1} + c_i     (h_i^0 = s_i^0)
        all        h^k = h^{k-1} + mean c_i;   g^k = D(h^k);   x^{k+1} = x^k - γ g^k

    s_i^k is the gradient of f_i at x^k on a batch.  s_i^0 is sent whole; with start="compressed",
    h_i^0 = C(s_i^0) is sent.  h = mean h_i in every round.  eta = 1 is EF21 with these steps.

    norm="l2"        D(h) = h/|h|: normalised EF21 and EF21-SGDM
    norm="linf"      D(h) = the signs of h
    norm="spectral"  D(H) = U V' for each part H = U Σ V' of x with two axes or more, its first axis by all
                     others; the signs of h for other parts: EF21-Muon without compression down

    -D(h) is where ⟨h, s⟩ is least among all s with ‖s‖ ≤ 1: a linear minimisation oracle (LMO).  D(0) = 0.
    g is the direction D(h), so an ``Aggregator``'s caller takes the step x - γ g by SGD without momentum.

    Any γ > 0 is allowed, and no constant of f is needed.  With γ of the order 1/√T and full gradients the
    mean of ‖∇f‖_* over T rounds is of the order 1/√T, where EF21 with a γ too large diverges.  A constant γ
    ends at a distance of about γ.

    momentum="heavy-ball"  the average v_i above
    momentum="igt"         implicit gradient transport: s_i^k is taken at x^k + ((1-η)/η) (x^k - x^{k-1})
    momentum="mvr"         momentum variance reduction, as in DASHA-MVR, two gradients on one batch:
                           v_i^k = (1 - η) (v_i^{k-1} + s_i(x^k) - s_i(x^{k-1})) + η s_i(x^k)

    eta = 1 makes the three one.  "igt" needs gradients of its own points, so an ``Aggregator`` refuses it and
    ``Descent`` takes it; for "mvr" give a function of x.

    eta="decreasing"  η_k = (2/(k+2))^p, and g^k = (2/(k+2))^q D(h^k) in round k: neither T nor the noise has
    to be known.  p and q are 1/2 and 3/4 for "heavy-ball", 4/7 and 5/7 for "igt", 2/3 and 2/3 for "mvr".

    theory: the γ that minimises the bound below for T = ``rounds`` and F = ``gap``,
    γ = √(F/(T ρ² (L/2 + 2M))), where the variance of samples is at most σ² for all x.  Raises ``ConfigError``
    for other batches, without ``rounds`` and ``gap``, for eta="decreasing", for polar="newton-schulz" and for
    momentum other than "heavy-ball".

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

    norm      the norm in which a step has the length γ: "l2", "linf" or "spectral"
    polar     how U V' is computed: "svd", or approximately by "newton-schulz", as in Muon, where a step has a
              length of up to 1.21 γ (``support.lmo``); for norm="spectral" alone
    eta       the weight η of the new gradient in the average v_i, or "decreasing"
    momentum  which average of gradients v_i is: "heavy-ball", "igt" or "mvr"
    rounds    the number T of rounds for which theory is the best γ; needed if gamma is "theory"
    gap       F, a bound on f(x⁰) - f*, from which theory takes γ: for f ≥ 0, f(x⁰) will do
    """

    C: Contractive
    gamma: StepSize = "theory"
    norm: Norm = "l2"
    polar: Polar = "svd"
    eta: RateOrDecreasing = 1.0
    momentum: GradientAverage = "heavy-ball"
    rounds: PositiveIntegerOrNone = None
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
    class Replica(Estimate):
        h: Array

    @dataclass
    class WithPrevious(Replica):
        previous: Array  # x^{k-1}

    def estimate(self, r: Replica, broadcast: Message, key: Key) -> None:
        self.down.decompress_add(broadcast.m, r.h, key)  # h^k = h^{k-1} + mean c_i
        r.g[:] = self.direction(r.h, key)  # g^k = D(h^k), times t_k/γ for eta="decreasing"
        self.keep_point(r)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        return {"gamma": self.best_step(c, d, n)}
