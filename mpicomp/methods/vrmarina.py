"""VR-MARINA: MARINA on batches, for finite sums; with sync_batch, the online variant."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.compressors import Identity, Lossless, Unbiased
from mpicomp.methods.parameters import BatchSize, ProbabilityOrTheory, StepSize
from mpicomp.methods.support.batch_theory import require_bounded_variance
from mpicomp.methods.support.coins import TwoPointMethod, share
from mpicomp.methods.support.variance_theory import balanced_probability, probability, variance
from mpicomp.problems.constants import Constants


@dataclass(frozen=True)
class VRMARINA(TwoPointMethod):
    """Algorithms 2 and 3.  The coin c^k ~ Bern(p) is the same on all ranks; c^0 = 1, g^0 = 0::

        all        x^{k+1} = x^k - γ g^k
        worker i   sends  ∇f_i(x^{k+1})                                          if c^k = 1
                          Q_i(1/b' Σ_{j ∈ J_i} (∇f_ij(x^{k+1}) - ∇f_ij(x^k)))    otherwise
        all        g^{k+1} = the mean of the messages if c^k = 1, else g^k + their mean

    J_i are ``batch`` = b' samples, the same at both points; worker i draws new ones in each round.
    sync_batch  None: dense rounds send the full gradient of a finite sum, Algorithm 2.
                A number b: they send the mean over b samples, Algorithm 3, the online case.

    theory: p = min{ζ/d, b'/(m + b')}, with ζ/d in bytes as for MARINA and m the samples of a worker, or b
    online; gamma = 1/(L + √((1-p)/p ((A - B) L_+² + B L_±² + (A + (1-B)/n) L_σ²/b'))).
    For independent compressors, A = ω/n and B = 0, that is 1/(L + √((1-p)/(pn) (ω L̃² + (1+ω) 𝓛²/b'))) of
    Theorems 3.1 and 3.2, with L_+ for L̃ and L_σ for 𝓛, which are no larger.  For correlated compressors:
    given the batches, the AB-inequality bounds the variance of compression; independent batches add at most
    L_σ²/b' to mean |Δ_i|² and at most L_σ²/(b' n) to |mean Δ_i|².  Algorithm 3's theorem is for samples of a
    variance of at most σ² for all x; another ``sync_batch`` raises ``ConfigError``.

    Differences from the paper: batches of a finite sum are drawn without replacement, which adds less
    variance, and none with batch=None, all samples; the mean is broadcast and every rank forms g and takes
    the step.

    p  the probability of a dense round
    """

    Q: Unbiased
    batch: BatchSize
    gamma: StepSize = "theory"
    p: ProbabilityOrTheory = "theory"
    sync_batch: BatchSize = None
    sync: Identity = Identity()
    down: Lossless = Lossless()

    recalled: ClassVar[str] = "p and gamma of theory"
    paper: ClassVar[str] = "Gorbunov, Burlachenko, Li, Richtárik, MARINA (ICML 2021), Algorithms 2 and 3"

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        found = {}
        if isinstance(self.p, str):
            balanced = balanced_probability(self, c, self.batch, self.sync_batch)
            found["p"] = min(share(self.Q, self.sync, d, n), balanced)
        if isinstance(self.gamma, str):
            require_bounded_variance(self, c, self.sync_batch, "sync_batch")
            p = probability(self.p, found)
            a, b = self.Q.ab(d, n)
            spread = (a - b) * c.L_plus**2 + b * c.L_pm**2
            spread += (a + (1 - b) / n) * variance(self, c, self.batch)
            found["gamma"] = 1 / (c.L + sqrt((1 - p) / p * spread))
        return found
