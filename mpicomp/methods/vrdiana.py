"""VR-DIANA: DIANA on batches, with variance reduction for the samples too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Lossless, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, ProbabilityOrTheory, RateOrDefault, StepSize
from mpicomp.methods.support import shifts
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.rates import require_rate
from mpicomp.methods.support.shifted import ShiftedMethod
from mpicomp.methods.support.starts import Start
from mpicomp.methods.support.stochastic import batch_size, gradient
from mpicomp.methods.support.variance_theory import probability, require_constant, variance
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class VRDIANA(ShiftedMethod, EstimatingMethod):
    """DIANA with the loopless estimator L-SVRG.  The coin u^k ~ Bern(p) is the same on all ranks::

        worker i   s_i = 1/b' Σ_{j ∈ J_i} (∇f_ij(x^k) - ∇f_ij(w^k)) + ∇f_i(w^k)
                   m_i = C_i(s_i - h_i^k);   h_i^{k+1} = h_i^k + α m_i
        all        g^k = h^k + mean m_i;   x^{k+1} = x^k - γ g^k;   h^{k+1} = h^k + α mean m_i
                   w^{k+1} = x^k if u^k = 1, else w^k

    At the start w^0 = x^0 and h_i^0 = 0, or as ``start`` says (``support.starts``).  J_i are ``batch`` = b'
    samples, the same at x^k and w^k; worker i draws new ones in each round.  h = mean h_i in every round.
    alpha defaults to 1/(1 + ω).

    theory: p = b'/m, m the samples of a worker.  A, of the AB-inequality, is ω/n for independent compressors.
    For convex f_ij and α ≤ 1/(1 + ω), gamma = 1/(L_ij (1 + 36 (A + 1/n))), which is the paper's
    1/(L (1 + 36 (ω+1)/n)) with a smoothness constant of every f_ij for L.
    Where some f_ij is not convex, or not known to be, gamma is min{1/(4L), 1/√(12 A L_+²/α² + 4 T/p),
    (p²/(16 L T))^{1/3}} with T = (4A + 1/n) L_σ²/b', derived in ``support.shifts``.  It is of the order of
    Theorem 4, 1/(L √(1 + ω/n) ((m/b')^{2/3} + ω + 1)), or larger.
    With batch=None, all samples, this is DIANA: L_max replaces L_ij, and without convexity gamma is DIANA's.

    Differences from the paper: batches, drawn without replacement; the server broadcasts the mean of the
    m_i and every rank takes the step; no prox.

    p  the probability with which w^k becomes x^k
    """

    Q: Unbiased
    batch: BatchSize
    gamma: StepSize = "theory"
    p: ProbabilityOrTheory = "theory"
    alpha: RateOrDefault = None
    down: Lossless = Lossless()
    start: Start = "zero"

    recalled: ClassVar[str] = "the constant 36 of gamma for convex f_ij; Theorem 4"
    paper: ClassVar[str] = "Horváth, Kovalev, Mishchenko, Stich, Richtárik, arXiv 1904.05115, VR-DIANA"
    may_adapt: ClassVar[bool] = True
    noisy_estimate: ClassVar[bool] = True
    needs_function: ClassVar[bool] = True  # at two points
    starts_at_x0: ClassVar[tuple[str, ...]] = ("w",)

    @dataclass
    class Replica:
        x: Array
        g: Array
        h: Array
        w: Array

    @dataclass
    class Worker:
        h: Array
        gradient: Array  # ∇f_i(w), which changes only when w does

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        if key.round == 0 or self._moves(key.before()):
            w.gradient = f.grad(r.w)  # ∇f_i(w^k), where w has moved
        at_x, at_w = (gradient(f, x, self.batch, key) for x in (r.x, r.w))  # on the same J_i
        return self.push(w, at_x - at_w + w.gradient, key)  # s_i

    def estimate(self, r: Replica, broadcast: Message, key: Key) -> None:
        if self._moves(key):
            r.w[:] = r.x  # w^{k+1} = x^k
        r.g[:] = r.h
        self.down.decompress_add(broadcast.m, r.g, key)  # g^k = h^k + m
        self.down.decompress_add(broadcast.m, r.h, key, self.rate(key))  # h^{k+1} = h^k + α m

    def _moves(self, key: Key) -> bool:
        return key.shared("vrdiana/coin").coin(self.p)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        found = {}
        if isinstance(self.p, str):
            found["p"] = 1 / self._batches("p", c)
        if isinstance(self.gamma, str):
            (a, _), omega = self.Q.ab(d, n), self.Q.omega(d, n)
            convex = c.mu is not None and c.convex
            if convex or self.batch is not None:
                require_rate(self, "alpha", 1 / (1 + omega), "1/(1 + ω)")
            if convex:
                L = c.L_max if self.batch is None else require_constant(self, "gamma", c, "L_ij")
                found["gamma"] = 1 / (L * (1 + 36 * (a + 1 / n)))
            elif self.batch is None:
                found["gamma"] = shifts.step(c, a, omega, self.alpha)
            else:
                p, noise = probability(self.p, found), variance(self, c, self.batch)
                found["gamma"] = shifts.sampled_step(c, a, self.alpha, n, p, noise)
        return found

    def _batches(self, parameter: str, c: Constants) -> float:
        """m/b'."""
        if self.batch is None:
            return 1.0
        return require_constant(self, parameter, c, "samples") / batch_size(self.batch, c.samples)
