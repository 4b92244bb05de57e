"""DASHA-MVR: DASHA with stochastic gradients and momentum variance reduction."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Lossless, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.parameters import BatchSize, Rate, RateOrDefault, StepSize
from mpicomp.methods.support.batch_theory import require_bounded_variance
from mpicomp.methods.support.differences import DifferenceMethod
from mpicomp.methods.support.estimating import TwoPointEstimate, TwoPoints
from mpicomp.methods.support.starts import Start
from mpicomp.methods.support.stochastic import gradient
from mpicomp.methods.support.variance_theory import variance
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class DASHAMVR(TwoPointEstimate, DifferenceMethod):
    """Algorithm 1 with the MVR estimator; s_i(x) is the gradient of f_i at x on a batch::

        worker i   h_i^+ = s_i(x^{k+1}) + (1 - b) (h_i - s_i(x^k))                 (h_i^0 = s_i(x^0))
                   m_i = C_i(h_i^+ - h_i - a (g_i - h_i));   g_i += m_i
        all        g += mean m_i;   x^{k+2} = x^{k+1} - γ g

    At the start g_i^0 = h_i^0, or as ``start`` says, as for DASHA.  A batch is ``batch`` = B samples, the
    same at both points; worker i draws new ones in each round.  g = mean g_i in every round.  a defaults to
    1/(2ω + 1).  b in (0, 1] is the weight of the new samples.  For |∇f|² ≤ ε take b of order n ε B/σ² or, if
    that is less, √(n ε B/σ²)/ω.  b = 1 keeps nothing of the past.

    theory, for a = 1/(2ω + 1): gamma =
    1/(L + √(96 A (2ω + 1) (L̃² + (1-b)² L_σ²/B) + 4 (1-b)² L_σ²/(b n B))), A of the
    AB-inequality, ω/n for independent compressors, L_σ the theorem's mean-squared smoothness constant of the
    stochastic gradients.  The theorem is for samples of a variance of at most σ² for all x; other batches
    raise ``ConfigError``.

    Differences from the paper: h_i^0 uses an ordinary batch; the paper uses a larger one.  The mean is
    broadcast and every rank takes the step.  With batch=None, all samples, no variance is counted.

    b  the weight of the new samples in h_i
    a  the rate at which the error of g_i fades
    """

    Q: Unbiased
    batch: BatchSize
    b: Rate
    gamma: StepSize = "theory"
    a: RateOrDefault = None
    down: Lossless = Lossless()
    start: Start = "gradient"

    recalled: ClassVar[str] = "the constants of gamma, and the order of b"
    paper: ClassVar[str] = "Tyurin, Richtárik, DASHA (ICLR 2023), Algorithm 1, DASHA-MVR"
    may_adapt: ClassVar[bool] = True
    noisy_estimate: ClassVar[bool] = True

    def local(self, w: DifferenceMethod.Worker, r: TwoPoints, f: Objective, key: Key) -> Array:
        h = gradient(f, r.x, self.batch, key)  # s_i(x^{k+1})
        if key.round > 0:
            h += (1 - self.b) * (w.h - gradient(f, r.previous, self.batch, key))  # h_i^+, on the same samples
        return h

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_bounded_variance(self, c, self.batch)
        noise = (1 - self.b) ** 2 * variance(self, c, self.batch)
        spread = self.spread(96, d, n) * (c.L_tilde**2 + noise)
        return {"gamma": 1 / (c.L + sqrt(spread + 4 * noise / (self.b * n)))}
