"""Distributed compressed gradient descent (QGD); with a batch, QSGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.compressors import Lossless, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message, Nothing
from mpicomp.methods.parameters import BatchSize, StepSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.batch_theory import batch_smoothness
from mpicomp.methods.support.convexity import require_convex
from mpicomp.methods.support.estimating import Estimate, EstimatingMethod
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class DCGD(AveragingMethod, EstimatingMethod):
    """Compressed gradient descent::

        worker i   sends m_i = C_i(∇f_i(x^k))
        all        x^{k+1} = x^k - γ mean m_i

    With ``batch``, the mean gradient over that many samples replaces ∇f_i(x^k).  Worker i draws new samples
    in each round.
    theory, for convex f_i, or any f_i if A = 0: gamma = 1/(L + 2 A L_max), from
    E|g|² ≤ |∇f|² + A mean |∇f_i|².  A is the constant of the AB-inequality, ω/n for independent compressors.
    If f is μ-strongly convex, the limit of E|x - x*|² is at most 2γ A mean |∇f_i(x*)|²/μ.
    On batches of b, for convex f_ij, gamma = 1/(L + 2 A L_max + 2 (A + 1/n) L_ij/b), and samples of variance
    σ*² at x* add 2γ (A + 1/n) σ*²/(b μ) to this bound, from E|g|² ≤ |∇f|² + A mean |∇f_i|² + (A + 1/n) V, V
    the variance that ``support.batch_theory`` bounds.  Where samples have a variance of at most σ² for all x,
    the step is that of full gradients, for any f if A = 0, and they add γ (A + 1/n) σ²/(b μ).  Raises
    ``ConfigError`` for other batches.

    Differences from the paper: the server broadcasts g^k and not x^{k+1}; every rank takes the step.
    """

    Q: Unbiased
    gamma: StepSize = "theory"
    batch: BatchSize = None
    down: Lossless = Lossless()

    paper: ClassVar[str] = "Alistarh et al., QSGD (2017); Khirirat et al. (2018)"
    may_adapt: ClassVar[bool] = True
    noisy_estimate: ClassVar[bool] = True

    def uplink(self, key: Key) -> Unbiased:
        return self.Q

    def worker_step(self, w: Nothing, r: Estimate, f: Objective, key: Key) -> Message:
        return Message(self.Q.compress(gradient(f, r.x, self.batch, key), key))  # m_i

    def estimate(self, r: Estimate, broadcast: Message, key: Key) -> None:
        r.g[:] = 0
        self.down.decompress_add(broadcast.m, r.g, key)  # g^k = mean m_i

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        a, _ = self.Q.ab(d, n)
        if a:  # without compression this is GD, which needs no convexity
            require_convex(self, c)
        S = batch_smoothness(self, c, self.batch)
        return {"gamma": 1 / (c.L + 2 * a * c.L_max + 2 * (a + 1 / n) * S)}
