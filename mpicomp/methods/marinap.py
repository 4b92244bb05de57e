"""MARINA-P: the server compresses the steps of its model, for each worker by a compressor of its own."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MessageError
from mpicomp.compressors import Identity, Unbiased
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import ProbabilityOrDefault, StepSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.scattering import ScatteringMethod
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class MARINAP(AveragingMethod, ScatteringMethod):
    """The server has the model x, and worker i a model w_i, at the start both x⁰::

        worker i   sends ∇f_i(w_i^k)
        server     x^{k+1} = x^k - γ mean ∇f_i(w_i^k)
                   with probability p, the coin the same on all ranks, to all:  x^{k+1}
                   else to worker i alone:  Q_i(x^{k+1} - x^k)
        worker i   w_i^{k+1} = x^{k+1}, or else w_i^k + Q_i(x^{k+1} - x^k)

    Only the way down is compressed.  With Q = PermK each worker gets its share of the coordinates, d/n of
    them, and mean Q_i(y) = y, so the mean of the w_i is x.  The draws of RandK are independent, or with
    mask="shared" one for all workers, whose models are then equal.  p defaults to (mean bytes of Q) / (bytes
    of ``sync``): whole and compressed messages then cost the same on average.  The run reports x.
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
    iterate: ClassVar[str] = "z"
    model: ClassVar[str | None] = "x"
    starts_at_x0: ClassVar[tuple[str, ...]] = ("x", "before", "w")

    @dataclass
    class Replica:
        z: Array  # the last model that went to all

    @dataclass
    class Server:
        x: Array
        before: Array  # x^k, once x is x^{k+1}

    @dataclass
    class Worker:
        w: Array  # without a model that went to all in the last round

    @property
    def down(self) -> Identity:  # type: ignore[override]
        return self.sync

    def uplink(self, key: Key) -> Identity:
        return self.sync

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        if key.round > 0 and self._whole(key.before()):
            w.w = r.z.copy()  # w_i^k = x^k
        return Message(self.sync.compress(f.grad(w.w), key))

    def answer(self, s: Server, r: Replica, m: Array, key: Key) -> Bytes:
        s.before, s.x = s.x, s.x - self.gamma * m  # x^{k+1} = x^k - γ mean ∇f_i(w_i^k)
        if self._whole(key):
            return self.sync.compress(s.x - r.z, key)
        return np.zeros_like(m, shape=0, dtype=np.uint8)

    def replica_step(self, r: Replica, broadcast: Message, key: Key) -> None:
        if self._whole(key):
            self.sync.decompress_add(broadcast.m, r.z, key)
        elif len(broadcast.m):
            raise MessageError(f"MARINAP: {len(broadcast.m)} bytes for all where each worker has its own.")

    def scatters(self, key: Key) -> bool:
        return not self._whole(key)

    def own_message(self, s: Server, r: Replica, key: Key) -> Message:
        return Message(self.Q.compress_difference(s.x, s.before, key))  # Q_i(x^{k+1} - x^k)

    def receive(self, w: Worker, own: Message, key: Key) -> None:
        self.Q.decompress_add(own.m, w.w, key)  # w_i^{k+1} = w_i^k + Q_i(x^{k+1} - x^k)

    def _whole(self, key: Key) -> bool:
        return key.shared("marinap/coin").coin(self.p)

    def paper_bits_down(self, broadcast: Message, d: int, key: Key) -> int:
        return self.sync.paper_bits(broadcast.m, d, key) if self._whole(key) else 0

    def paper_bits_own(self, own: Message, d: int, key: Key) -> int:
        return self.Q.paper_bits(own.m, d, key)

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"p": min(1.0, self.Q.mean_nbytes(d, n) / self.sync.mean_nbytes(d, n))}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        omega, (a, b) = self.Q.omega(d, n), self.Q.ab(d, n)
        M = c.L_tilde * sqrt(omega)
        if c.quadratic:
            M = min(M, c.L_pm * sqrt(omega) + c.L * sqrt(a - b))
        return {"gamma": 1 / (c.L + sqrt((1 - self.p) / self.p) * M)}
