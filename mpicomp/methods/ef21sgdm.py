"""EF21-SGDM: EF21 with momentum, for stochastic gradients at any batch size; eta=1 is EF21-SGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Compressor, Contractive, Lossless
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, Rate, StepSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.batch_theory import require_bounded_variance
from mpicomp.methods.support.estimating import Estimate, EstimatingMethod
from mpicomp.methods.support.starts import EstimateStart, uplink_from
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class EF21SGDM(AveragingMethod, EstimatingMethod):
    """Algorithm 1, with s_i^k the gradient of f_i at x^k on a batch::

        worker i   v_i^k = (1 - η) v_i^{k-1} + η s_i^k                       (v_i^0 = s_i^0)
                   c_i = C(v_i^k - g_i^{k-1});   g_i^k = g_i^{k-1} + c_i     (g_i^0 = s_i^0)
        all        g^k = g^{k-1} + mean c_i;   x^{k+1} = x^k - γ g^k

    s_i^0 is sent whole; with start="compressed", g_i^0 = C(s_i^0) is sent.  g = mean g_i in every round.
    eta = 1 is EF21-SGD, and with full gradients (batch=None) it is EF21.
    eta: for T rounds the theorem's bound is least at the minimum of 1, (n a/T)^{1/2}, (α a/T)^{1/3} and
    (α² a/T)^{1/4}, with a = L (f(x^0) - f*)/σ².  T and σ need not be known, so eta is a number here.  v
    averages over about 2/η - 1 rounds, 19 for the default.  Take a larger eta, at most 1, for less noise or
    fewer rounds.
    theory: gamma = min{α/(20 L̃), η/(7 L)}, where the variance of samples is at most σ² for all x.  Raises
    ``ConfigError`` for other batches.

    The step is proved here for every γ ≤ 1/(L/η + Q mean L_i), Q = √(1-α)/(1 - √(1-α)) ≤ 2/α, and it is less.
    With M = Q mean L_i + L (1-η)/η, from start="gradient", on batches of b,
    (1/T) Σ E|∇f(x^k)|² ≤ 2 (f(x^0) - f*)/(γ T) + (1 + M/L) N², where N is
    σ/√(b n) (√η + 1/√(ηT)) + Q σ/√b (2η + √(η/T)), and 0 with full gradients.

    Proof.  Let ‖.‖ be the norm √(Σ_k E|.|²) of a sequence, and R = γ ‖g‖ the length of the steps.

    1. v_i - ∇f_i is (1-η) of its last value, less (1-η) of the gradient's change, plus η times the noise.  So
       the mean v - ∇f has a norm of at most L R (1-η)/η plus noise.  v is an average of gradients, so
       the changes of v_i have a norm of at most L_i R plus noise.
    2. v_i - g_i shrinks by √(1-α), after the change of v_i has been added: its norm is at most Q L_i R plus
       noise.  The norm of a mean is at most the mean of the norms.
    3. So ‖g - ∇f‖ ≤ M R + N √T.  By smoothness, f^+ ≤ f - γ/2 |∇f|² - (1/(2γ) - L/2) γ² |g|² + γ/2 |g - ∇f|²,
       and ‖g - ∇f‖² ≤ (1 + L/M) M² R² + (1 + M/L) N² T, whose first term is at most (1/γ - L) R²/γ.

    Differences from the paper: s_i^0 uses an ordinary batch; the paper uses a larger one.  The mean is
    broadcast and every rank takes the step.

    eta  the weight η of the new gradient in the average v_i
    """

    C: Contractive
    gamma: StepSize = "theory"
    eta: Rate = 0.1
    batch: BatchSize = None
    down: Lossless = Lossless()
    start: EstimateStart = "gradient"

    recalled: ClassVar[str] = "the constants of gamma, and the bound that gives the best eta"
    paper: ClassVar[str] = "Fatkhullin, Tyurin, Richtárik, Momentum provably improves EF (NeurIPS 2023)"
    may_adapt: ClassVar[bool] = True

    @dataclass
    class Worker:
        v: Array
        g: Array

    def uplink(self, key: Key) -> Compressor:
        return uplink_from(self.start, self.C, key)

    def worker_step(self, w: Worker, r: Estimate, f: Objective, key: Key) -> Message:
        s = gradient(f, r.x, self.batch, key)
        w.v = s if key.round == 0 else (1 - self.eta) * w.v + self.eta * s  # v_i^k
        C = self.uplink(key)
        c = C.compress_difference(w.v, w.g, key)  # c_i = C(v_i^k - g_i^{k-1})
        C.decompress_add(c, w.g, key)  # g_i^k = g_i^{k-1} + c_i
        return Message(c)

    def residual(self, w: Worker) -> Array:
        return w.v - w.g

    def estimate(self, r: Estimate, broadcast: Message, key: Key) -> None:
        self.down.decompress_add(broadcast.m, r.g, key)  # g^k = g^{k-1} + mean c_i

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_bounded_variance(self, c, self.batch)
        return {"gamma": min(self.C.alpha(d, n) / (20 * c.L_tilde), self.eta / (7 * c.L))}
