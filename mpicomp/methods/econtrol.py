"""EControl: EF21-SGD with a memory of the compression errors, which has a weight of its own."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Compressor, Contractive, Lossless
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, RateOrZero, StepSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.batch_theory import require_bounded_variance
from mpicomp.methods.support.estimating import Estimate, EstimatingMethod
from mpicomp.methods.support.rates import require_rate
from mpicomp.methods.support.starts import EstimateStart, uplink_from
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class EControl(AveragingMethod, EstimatingMethod):
    """s_i^k is the gradient of f_i at x^k, or on a batch::

        worker i   Δ_i = C(η e_i^{k-1} + s_i^k - g_i^{k-1});   g_i^k = g_i^{k-1} + Δ_i     (g_i^0 = s_i^0)
                   e_i^k = e_i^{k-1} + s_i^k - g_i^k                                       (e_i^0 = 0)
        all        g^k = g^{k-1} + mean Δ_i;   x^{k+1} = x^k - γ g^k

    s_i^0 is sent whole; with start="compressed", g_i^0 = C(s_i^0) and e_i^0 = s_i^0 - g_i^0.  g = mean g_i in
    every round, and x^{k+1} - γ mean e_i^k = x^0 - γ Σ mean s_i, the iterate of SGD along the same gradients.
    eta = 0 is EF21-SGD.
    theory: gamma = 1/(L + M), M = 2 r mean L_i/(2 (1 - r) - η (1 + r)), r = √(1-α), for η ≤ (1 - r)/(1 + r),
    the default; then M = 2 r mean L_i/(1 - r).  With full gradients from start="gradient",
    (1/T) Σ E|∇f(x^k)|² ≤ 2 (f(x^0) - f*)/(γ T).  On batches it asks for a variance of at most σ² for all x,
    and x converges to a neighbourhood.  Raises ``ConfigError`` for other batches.  The step is ours.

    Proof.  Let ‖.‖ be the norm √(Σ_k E|.|²) of a sequence, R = γ ‖g‖ the length of the steps, ψ_i the vector
    that C is given, and δ_i = ψ_i - Δ_i, so ‖δ_i‖ ≤ r ‖ψ_i‖.

    1. e_i^k = (1 - η) e_i^{k-1} + δ_i^k, and s_i^k - g_i^k = δ_i^k - η e_i^{k-1}.  So s_i - g_i is the filter
       (1 - z)/(1 - (1-η) z) of δ_i, z the delay by a round.  Its gain on |z| = 1 is largest at z = -1, and
       ‖s_i - g_i‖ ≤ 2/(2-η) ‖δ_i‖.
    2. ψ_i^{k+1} is the change of s_i, and the filter (1 + η - z)/(1 - (1-η) z) of δ_i, whose gain is largest
       at z = -1 too.  So ‖ψ_i‖ ≤ L_i R + (2+η)/(2-η) r ‖ψ_i‖, and with 1. mean ‖s_i - g_i‖ ≤ M R; the norm of
       mean (s_i - g_i) is no more.
    3. f^+ ≤ f - γ/2 |∇f|² - (1/(2γ) - L/2) γ² |g|² + γ/2 |g - ∇f|² by smoothness; the sum of the last two
       terms is at most 0 where (γ M)² ≤ 1 - γ L.

    Differences from the paper, which has h_i for g_i: the mean is broadcast and every rank takes the step.

    eta  the weight η of the memory e_i in the next message, 0 for none
    """

    C: Contractive
    gamma: StepSize = "theory"
    eta: RateOrZero = None
    batch: BatchSize = None
    down: Lossless = Lossless()
    start: EstimateStart = "gradient"

    paper: ClassVar[str] = "Gao, Islamov, Stich, EControl (arXiv 2311.05645)"
    may_adapt: ClassVar[bool] = True

    @dataclass
    class Worker:
        g: Array
        e: Array

    def uplink(self, key: Key) -> Compressor:
        return uplink_from(self.start, self.C, key)

    def worker_step(self, w: Worker, r: Estimate, f: Objective, key: Key) -> Message:
        s = gradient(f, r.x, self.batch, key)
        C = self.uplink(key)
        delta = C.compress_difference(self.eta * w.e + s, w.g, key)  # Δ_i = C(η e_i + s_i^k - g_i)
        C.decompress_add(delta, w.g, key)  # g_i^k = g_i^{k-1} + Δ_i
        w.e = w.e + (s - w.g)  # e_i^k = e_i^{k-1} + s_i^k - g_i^k
        return Message(delta)

    def residual(self, w: Worker) -> Array:
        return w.e

    def estimate(self, r: Estimate, broadcast: Message, key: Key) -> None:
        self.down.decompress_add(broadcast.m, r.g, key)  # g^k = g^{k-1} + mean Δ_i

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"eta": self._largest(d, n)}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_bounded_variance(self, c, self.batch)
        require_rate(self, "eta", self._largest(d, n), "(1 - r)/(1 + r), r = √(1 - α),")
        root = sqrt(1 - self.C.alpha(d, n))
        spread = 2 * root * c.L_mean / (2 * (1 - root) - self.eta * (1 + root))
        return {"gamma": 1 / (c.L + spread)}

    def _largest(self, d: int, n: int) -> float:
        """The largest η of theory."""
        root = sqrt(1 - self.C.alpha(d, n))
        return (1 - root) / (1 + root)
