"""EF21: error feedback that needs no bound on the gradients; with a batch, EF21-SGD."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Compressor, Contractive, Lossless
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, CurvatureOrZero, StepSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.batch_theory import require_bounded_variance
from mpicomp.methods.support.convexity import curvature
from mpicomp.methods.support.estimating import Estimate, EstimatingMethod
from mpicomp.methods.support.starts import EstimateStart, uplink_from
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class EF21(AveragingMethod, EstimatingMethod):
    """EF21, Algorithm 2 of Richtárik, Sokolov, Fatkhullin (2021)::

        worker i   c_i = C(∇f_i(x^k) - g_i^{k-1});   g_i^k = g_i^{k-1} + c_i
        all        g^k = g^{k-1} + mean c_i;   x^{k+1} = x^k - γ g^k

    The estimates start at g_i^0 = C(∇f_i(x^0)), or with start="gradient" at ∇f_i(x^0), sent whole.
    g = mean g_i in every round.
    theory: gamma = 1/(L + Q mean L_i), Q = √(1-α)/θ, θ = 1 - √(1-α), for any f.  With
    e_i^k = ∇f_i(x^k) - g_i^k and D_k = mean √E|e_i^k|²,
    (1/T) Σ E|∇f(x^k)|² ≤ 2 (f(x^0) - f*)/(γT) + D_0²/(θT).
    mu          a constant of the Polyak-Łojasiewicz condition |∇f|² ≥ 2μ (f - f*), as a number or "theory",
                that of the problem's strong convexity; 0 for none.  With it theory is
                gamma = min{1/(L + √2 Q mean L_i), θ/(2μ)}, and Ψ^k ≤ (1 - γμ)^k Ψ^0 for
                Ψ^k = E f(x^k) - f* + (γ/θ) D_k².
    With ``batch``, the mean gradient over that many samples replaces ∇f_i: this is EF21-SGD.  If the variance
    of samples is at most σ² for all x, theory is gamma as for full gradients, else it raises ``ConfigError``.
    x then converges only to a neighbourhood.  Neither a smaller γ nor more workers shrink it; the proof is
    that of EF21-SGDM with η = 1.  Where the noise is large, take EF21-SGDM.

    Proof.  Let ρ_k² = E|x^{k+1} - x^k|².  As √E|.|² is a norm, E|g^k - ∇f(x^k)|² ≤ D_k².

    1. √E|e_i^{k+1}|² ≤ √(1-α) (√E|e_i^k|² + L_i ρ_k), as C's error is at most √(1-α) of its input.  The mean
       over i, with (a + b)² ≤ a²/√(1-α) + b²/θ, is D_{k+1}² ≤ (1-θ) D_k² + θ (Q mean L_i)² ρ_k².
    2. By smoothness, f^+ ≤ f - γ/2 |∇f|² - (1/(2γ) - L/2) |x^+ - x|² + γ/2 |g - ∇f|².  So E f + γ/(2θ) D²
       falls by γ/2 E|∇f|² or more in each round, as γL + (γ Q mean L_i)² ≤ 1.  Sum over k.
    3. With μ, -γ/2 |∇f|² ≤ -γμ (f - f*).  In Ψ^{k+1} the factor of D_k² is γ/2 + (1-θ) γ/θ ≤ (1 - γμ) γ/θ,
       and that of ρ_k² is at most 0, as γL + 2 (γ Q mean L_i)² ≤ 1.

    Differences from the papers: the first has √(mean L_i²) for mean L_i, and mean E|e_i|² for D².  The second
    has mean L_i by weights on the workers; here no weights are needed, and some L_i may be 0.  The mean is
    broadcast and every rank takes the step.
    """

    C: Contractive
    gamma: StepSize = "theory"
    batch: BatchSize = None
    down: Lossless = Lossless()
    start: EstimateStart = "compressed"
    mu: CurvatureOrZero = 0.0

    recalled: ClassVar[str] = "what the papers have for gamma"
    paper: ClassVar[str] = (
        "Richtárik, Sokolov, Fatkhullin, EF21 (NeurIPS 2021), Algorithm 2; mean L_i: Richtárik, Gasanov, "
        "Burlachenko, arXiv 2402.10774"
    )
    may_adapt: ClassVar[bool] = True

    @dataclass
    class Worker:
        g: Array
        e: Array  # ∇f_i(x^k) - g_i^k

    def uplink(self, key: Key) -> Compressor:
        return uplink_from(self.start, self.C, key)

    def worker_step(self, w: Worker, r: Estimate, f: Objective, key: Key) -> Message:
        w.e = gradient(f, r.x, self.batch, key) - w.g
        C = self.uplink(key)
        c = C.compress(w.e, key)  # c_i = C(∇f_i(x^k) - g_i^{k-1})
        C.decompress_add(c, w.g, key)  # g_i^k = g_i^{k-1} + c_i
        C.decompress_add(c, w.e, key, -1.0)  # ∇f_i(x^k) - g_i^k
        return Message(c)

    def residual(self, w: Worker) -> Array:
        return w.e

    def estimate(self, r: Estimate, broadcast: Message, key: Key) -> None:
        self.down.decompress_add(broadcast.m, r.g, key)  # g^k = g^{k-1} + mean c_i

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_bounded_variance(self, c, self.batch)
        root = sqrt(1 - self.C.alpha(d, n))
        theta, spread = 1 - root, c.L_mean * root / (1 - root)
        if self.mu == 0:
            return {"gamma": 1 / (c.L + spread)}
        mu = curvature(self, self.mu, c, "leave mu at 0")
        return {"gamma": min(1 / (c.L + sqrt(2) * spread), theta / (2 * mu)), "mu": c.mu or 0.0}
