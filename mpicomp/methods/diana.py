"""DIANA: compressed differences to learned shifts."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.compressors import Sparse, Unbiased
from mpicomp.compressors.base import Array
from mpicomp.kernels import add_scaled
from mpicomp.keys import Key
from mpicomp.methods.averaging import AveragingMethod
from mpicomp.methods.base import Message
from mpicomp.methods.checks import Step
from mpicomp.methods.stochastic import gradient
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class DIANA(AveragingMethod):
    """Algorithm 1, with shifts h_i → ∇f_i(x*) so that what is compressed vanishes::

        worker i   m_i = C_i(∇f_i(x^k) - h_i^k);   h_i^{k+1} = h_i^k + α m_i
        server     m = mean m_i
        all        g^k = h^k + m;   x^{k+1} = x^k - γ g^k;   h^{k+1} = h^k + α m

    h = mean h_i throughout.  alpha defaults to 1/(1 + ω).
    With ``batch`` the gradient is the mean over that many samples of worker i, drawn anew in each round; the
    shifts remove the variance of compression and not that of the samples (VR-DIANA does), so it converges
    to a neighbourhood.  The step is the same.
    theory (constants as recalled): for convex f, gamma = 1/((1 + 6A) L_max), A of the AB-inequality
    (ω/n for independent compressors); for non-convex f, 1/(10 L √(1 + A) (2 + ω)), Theorem 4 of
    Horváth et al., arXiv 1904.05115, with full gradients (m = 1).

    Differences from the paper: the server broadcasts m and every rank takes the step; no prox.
    """

    Q: Unbiased
    gamma: Step = "theory"
    alpha: Step = None
    batch: int | float | None = None
    down: Sparse = Sparse()

    paper: ClassVar[str] = "Mishchenko, Gorbunov, Takáč, Richtárik, arXiv 1901.09269, Algorithm 1"
    fractions: ClassVar[tuple[str, ...]] = ("alpha",)
    counts: ClassVar[tuple[str, ...]] = ("batch",)

    @dataclass
    class Replica:
        x: Array
        h: Array

    @dataclass
    class Worker:
        h: Array

    def uplink(self, key: Key) -> Unbiased:
        return self.Q

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        m = self.Q.compress_difference(gradient(f, r.x, self.batch, key), w.h, key)
        self.Q.decompress_add(m, w.h, key, self.alpha)  # h_i^{k+1} = h_i^k + α m_i
        return Message(m)

    def follow(self, r: Replica, down: Message, key: Key) -> None:
        add_scaled(r.x, r.h, -self.gamma)
        self.down.decompress_add(down.m, r.x, key, -self.gamma)  # x^{k+1} = x^k - γ (h^k + m)
        self.down.decompress_add(down.m, r.h, key, self.alpha)  # h^{k+1} = h^k + α m

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"alpha": 1 / (1 + self.Q.omega(d, n))}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        a, _ = self.Q.ab(d, n)
        if c.mu is None:
            return {"gamma": 1 / (10 * c.L * sqrt(1 + a) * (2 + self.Q.omega(d, n)))}
        return {"gamma": 1 / ((1 + 6 * a) * c.L_max)}
