"""VR-DIANA: DIANA on batches, with the variance of the samples reduced too."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.compressors import Sparse, Unbiased
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.averaging import AveragingMethod
from mpicomp.methods.base import Message
from mpicomp.methods.checks import Step
from mpicomp.methods.reduction import known
from mpicomp.methods.stochastic import batch_size, gradient
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class VRDIANA(AveragingMethod):
    """With the loopless estimator (L-SVRG); u^k ~ Bern(p) is a coin that all ranks draw alike::

        worker i   s_i = 1/b' Σ_{j ∈ J_i} (∇f_ij(x^k) - ∇f_ij(w^k)) + ∇f_i(w^k)
                   m_i = C_i(s_i - h_i^k);   h_i^{k+1} = h_i^k + α m_i
        all        g^k = h^k + mean m_i;   x^{k+1} = x^k - γ g^k;   h^{k+1} = h^k + α mean m_i
                   w^{k+1} = x^k if u^k = 1, else w^k

    from w^0 = x^0.  J_i are ``batch`` = b' samples that worker i draws in each round, the same for both
    points.  h = mean h_i throughout.  alpha defaults to 1/(1 + ω).

    theory: p = b'/m, m the samples of a worker.  A, of the AB-inequality, is ω/n for independent compressors.
    For convex f_ij, gamma = 1/(L_ij (1 + 36 (A + 1/n))): the paper's 1/(L (1 + 36 (ω+1)/n)), as recalled,
    whose L is a smoothness constant of every f_ij.
    For non-convex f, gamma = 1/(10 L_sample √(1 + A) ((m/b')^{2/3} + ω + 1)), Theorem 4 as recalled, with
    L_sample, the root mean square, for such an L: it bounds the same variances.
    With batch=None, all samples, the f_i are the f_ij: L_max stands for L_ij and L for L_sample.

    Differences from the paper: batches, drawn without replacement; the server broadcasts the mean of the
    m_i and every rank takes the step; no prox.
    """

    Q: Unbiased
    batch: int | float | None
    gamma: Step = "theory"
    p: Step = "theory"
    alpha: Step = None
    down: Sparse = Sparse()

    paper: ClassVar[str] = "Horváth, Kovalev, Mishchenko, Stich, Richtárik, arXiv 1904.05115, VR-DIANA"
    steps: ClassVar[tuple[str, ...]] = ("gamma", "p")
    fractions: ClassVar[tuple[str, ...]] = ("p", "alpha")
    counts: ClassVar[tuple[str, ...]] = ("batch",)
    at_x0: ClassVar[tuple[str, ...]] = ("w",)

    @dataclass
    class Replica:
        x: Array
        h: Array
        w: Array

    @dataclass
    class Worker:
        h: Array
        gradient: Array  # ∇f_i(w), which changes only when w does

    def uplink(self, key: Key) -> Unbiased:
        return self.Q

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        if key.round == 0 or self._moves(key.before()):
            w.gradient = f.grad(r.w)
        at_x, at_w = (gradient(f, x, self.batch, key) for x in (r.x, r.w))  # of the same J_i
        m = self.Q.compress_difference(at_x - at_w + w.gradient, w.h, key)
        self.Q.decompress_add(m, w.h, key, self.alpha)  # h_i^{k+1} = h_i^k + α m_i
        return Message(m)

    def follow(self, r: Replica, down: Message, key: Key) -> None:
        if self._moves(key):
            r.w[:] = r.x
        r.x -= self.gamma * r.h
        self.down.decompress_add(down.m, r.x, key, -self.gamma)  # x^{k+1} = x^k - γ (h^k + m)
        self.down.decompress_add(down.m, r.h, key, self.alpha)  # h^{k+1} = h^k + α m

    def _moves(self, key: Key) -> bool:
        return key.shared("vrdiana/coin").coin(self.p)

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"alpha": 1 / (1 + self.Q.omega(d, n))}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        found = {}
        if isinstance(self.p, str):
            found["p"] = 1 / self._batches("p", c)
        if isinstance(self.gamma, str):
            a, _ = self.Q.ab(d, n)
            if c.mu is not None:
                L = c.L_max if self.batch is None else known(self, "gamma", c, "L_ij")
                found["gamma"] = 1 / (L * (1 + 36 * (a + 1 / n)))
            else:
                L = c.L if self.batch is None else known(self, "gamma", c, "L_sample")
                slowdown = self._batches("gamma", c) ** (2 / 3) + self.Q.omega(d, n) + 1
                found["gamma"] = 1 / (10 * L * sqrt(1 + a) * slowdown)
        return found

    def _batches(self, parameter: str, c: Constants) -> float:
        """m/b'."""
        if self.batch is None:
            return 1.0
        return known(self, parameter, c, "samples") / batch_size(self.batch, c.samples)
