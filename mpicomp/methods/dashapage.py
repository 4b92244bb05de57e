"""DASHA-PAGE: DASHA on batches of a finite sum."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Lossless, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.parameters import BatchSize, ProbabilityOrTheory, RateOrDefault, StepSize
from mpicomp.methods.support.differences import DifferenceMethod
from mpicomp.methods.support.estimating import TwoPointEstimate, TwoPoints
from mpicomp.methods.support.starts import Start
from mpicomp.methods.support.stochastic import gradient
from mpicomp.methods.support.variance_theory import balanced_probability, probability, variance
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class DASHAPAGE(TwoPointEstimate, DifferenceMethod):
    """Algorithm 1 with the PAGE estimator.  The coin c ~ Bern(p) is the same on all ranks, and c^0 = 1::

        worker i   h_i^+ = ∇f_i(x^{k+1})                                                   if c = 1
                           h_i + 1/B Σ_{j ∈ J_i} (∇f_ij(x^{k+1}) - ∇f_ij(x^k))     otherwise
                   m_i = C_i(h_i^+ - h_i - a (g_i - h_i));   g_i += m_i
        all        g += mean m_i;   x^{k+2} = x^{k+1} - γ g

    At the start g_i^0 = h_i^0 = ∇f_i(x^0), or g_i^0 as ``start`` says, as for DASHA.  J_i are ``batch`` = B
    samples, the same at both points; worker i draws new ones in each round.  g = mean g_i in every round.  a
    defaults to 1/(2ω + 1).

    theory: p = B/(m + B), m the samples of a worker, and for a = 1/(2ω + 1) gamma =
    1/(L + √(48 A (2ω + 1) (L̃² + (1-p) L_σ²/B) + 2 (1-p) L_σ²/(p n B))), A of the AB-inequality, ω/n for
    independent compressors.  In the theorem L_σ is the largest constant of the f_ij.  Its proof needs only
    that the variance of ∇f_ij(x) - ∇f_ij(y) over the samples j is at most L_σ² |x - y|² in the mean over i.

    Differences from the paper: batches are drawn without replacement, and with batch=None, all samples, no
    variance is counted; the mean is broadcast and every rank takes the step.

    p  the probability of a round with full gradients
    a  the rate at which the error of g_i fades
    """

    Q: Unbiased
    batch: BatchSize
    gamma: StepSize = "theory"
    p: ProbabilityOrTheory = "theory"
    a: RateOrDefault = None
    down: Lossless = Lossless()
    start: Start = "gradient"

    recalled: ClassVar[str] = "the constants of theory"
    paper: ClassVar[str] = "Tyurin, Richtárik, DASHA (ICLR 2023), Algorithm 1, DASHA-PAGE"
    may_adapt: ClassVar[bool] = True
    noisy_estimate: ClassVar[bool] = True

    def local(self, w: DifferenceMethod.Worker, r: TwoPoints, f: Objective, key: Key) -> Array:
        if key.round == 0 or key.shared("dasha/coin").coin(self.p):
            return f.grad(r.x)  # h_i^+, c = 1
        after, before = (gradient(f, x, self.batch, key) for x in (r.x, r.previous))  # on the same J_i
        return w.h + (after - before)  # h_i^+, c = 0

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        found = {}
        if isinstance(self.p, str):
            found["p"] = balanced_probability(self, c, self.batch)
        if isinstance(self.gamma, str):
            spread = self.spread(48, d, n)
            p = probability(self.p, found)
            noise = (1 - p) * variance(self, c, self.batch)
            found["gamma"] = 1 / (c.L + sqrt(spread * (c.L_tilde**2 + noise) + 2 * noise / (p * n)))
        return found
