"""MARINA-P: the server compresses the steps of its model, for each worker by a compressor of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Identity, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import ProbabilityOrDefault, StepSize
from mpicomp.methods.support.coins import share
from mpicomp.methods.support.own_models import OwnModelMethod
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class MARINAP(OwnModelMethod):
    """The server has the model x, and worker i a model w_i, at the start both x⁰::

        worker i   sends ∇f_i(w_i^k)
        server     x^{k+1} = x^k - γ mean ∇f_i(w_i^k)
                   with probability p, the coin the same on all ranks, to all:  x^{k+1}
                   else to worker i alone:  Q_i(x^{k+1} - x^k)
        worker i   w_i^{k+1} = x^{k+1}, or else w_i^k + Q_i(x^{k+1} - x^k)

    Only the way down is compressed.  With Q = PermK each worker gets its share of the coordinates, d/n of
    them, and mean Q_i(y) = y, so the mean of the w_i is x.  The draws of RandK are independent, or with
    mask="shared" one for all workers, whose models are then equal.  p defaults to (mean bytes of Q) / (bytes
    of ``sync``): whole models then cost, in the mean over rounds, the bytes of one message of Q.  The run
    reports x.
    theory, for any smooth f_i: gamma = 1/(L + √((1-p)/p) M), M = L̃ √ω; if all f_i are quadratic
    M = min{L̃ √ω, L_± √ω + L √θ}, θ = A - B of the AB-inequality: 0 for PermK, ω/n for independent draws.
    Then (1/T) Σ E|∇f(x^k)|² ≤ 2 (f(x⁰) - f*)/(γT).

    Proof.  u_i = w_i - x, W = mean|u_i|², U = |mean u_i|², y = x^{k+1} - x^k, g = mean ∇f_i(w_i).

    1. |g - ∇f(x)| ≤ mean L_i |u_i| ≤ L̃ √W.  For quadratics with matrices A_i it is mean B_i u_i + A mean u_i,
       A = mean A_i and B_i = A_i - A, and at most ‖mean B_i²‖^{1/2} √W + L √U = L_± √W + L √U.
    2. Q_i is unbiased, so E W⁺ ≤ (1-p)(W + ω|y|²), E U⁺ ≤ (1-p)(U + θ|y|²), and both begin at 0.
    3. For M = a √ω + b √θ, (a √W + b √U)² ≤ M (a W/√ω + b U/√θ) =: H by Cauchy's inequality, and by 2.
       E H⁺ ≤ (1-p)(H + M²|y|²).
    4. f(x⁺) ≤ f(x) - γ/2 |∇f(x)|² - (1/(2γ) - L/2)|y|² + γ/2 |g - ∇f(x)|².  So Φ = f - f* + γ/(2p) H has
       E Φ⁺ ≤ Φ - γ/2 |∇f(x)|² - (1/γ - L - γ M² (1-p)/p)|y|²/2, and this bracket is not negative.

    The paper has M² = L_A² ω + L_B² θ, for constants such that |g - ∇f(x)|² ≤ L_A² W + L_B² U whatever the
    u_i are; L_A = L̃ and L_B = 0 always do.

    Differences from the paper: what goes to all is the step from the model last sent to all, so its rounding
    error shrinks with that step.

    Q     the server's compressors
    p     the probability that the whole model goes down
    sync  how gradients go up, and the whole model down, such as by identity(values=f8)
    """

    Q: Unbiased
    gamma: StepSize = "theory"
    p: ProbabilityOrDefault = None
    sync: Identity = Identity()

    recalled: ClassVar[str] = "the algorithm, and what the paper has for M"
    paper: ClassVar[str] = "Gruntkowska, Tyurin, Richtárik, MARINA-P (arXiv 2402.06412)"
    needs_function: ClassVar[bool] = True  # at a point of each worker's own

    @dataclass
    class Worker:
        w: Array  # without a model that went to all in the last round

    @property
    def Q_down(self) -> Unbiased:  # type: ignore[override]
        return self.Q

    @property
    def p_down(self) -> float:
        return self.p

    def uplink(self, key: Key) -> Identity:
        return self.sync

    def worker_step(self, w: Worker, r: OwnModelMethod.Replica, f: Objective, key: Key) -> Message:
        self.take_whole(w, r, key)
        return Message(self.sync.compress(f.grad(w.w), key))

    def direction(self, s: OwnModelMethod.Server, m: Array, key: Key) -> Array:
        return m  # mean ∇f_i(w_i^k)

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"p": share(self.Q, self.sync, d, n)}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        return {"gamma": 1 / (c.L + self.drift(c, d, n))}
