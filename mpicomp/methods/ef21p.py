"""EF21-P: a compressed model downlink, with DIANA's compressed uplink."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.compressors import Compressor, Contractive, Identity, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import RateOrDefault, StepSize
from mpicomp.methods.support.convexity import require_convex
from mpicomp.methods.support.rates import require_rate
from mpicomp.methods.support.shifted import ShiftedMethod
from mpicomp.methods.support.starts import Start, rate_from
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class EF21P(ShiftedMethod):
    """The server keeps the model x, every rank keeps a model w, and only the compressed P goes down::

        worker i   m_i = Q_i(∇f_i(w^k) - h_i);   h_i += β m_i
        server     g = h + mean m_i;   h += β mean m_i
                   x^{k+1} = x^k - γ g;   P = C(x^{k+1} - w^k)
        all        w^{k+1} = w^k + P

    At the start w = x = x⁰ and h_i = 0, or h_i as ``start`` says (``support.starts``).  Q = Identity() is
    plain EF21-P.  beta defaults to 1/(1 + ω).  The run reports x, which the theorem is about.
    theory, for convex f_i and β = 1/(1 + ω):
    gamma = min{1/(160 A L_max), √(α/A)/(20 L̃), α/(100 L), 1/((1+ω) μ)}, A of the AB-inequality,
    the paper's ω/n for independent compressors.  Without compression up it is enough that f is convex.

    C     the server's compressor
    beta  the rate β at which the shifts h_i move
    """

    C: Contractive
    Q: Unbiased = Identity()
    gamma: StepSize = "theory"
    beta: RateOrDefault = None
    start: Start = "zero"

    recalled: ClassVar[str] = "the constants of gamma"
    paper: ClassVar[str] = "Gruntkowska, Tyurin, Richtárik, EF21-P and friends (ICML 2023), Algorithm 1"
    iterate: ClassVar[str] = "w"
    model: ClassVar[str | None] = "x"
    starts_at_x0: ClassVar[tuple[str, ...]] = ("x",)

    @dataclass
    class Replica:
        w: Array

    @dataclass
    class Server:
        x: Array
        h: Array

    @property
    def down(self) -> Compressor:  # type: ignore[override]
        return self.C

    def rate(self, key: Key) -> float:
        return rate_from(self.start, self.beta, key)

    def worker_step(self, w: ShiftedMethod.Worker, r: Replica, f: Objective, key: Key) -> Message:
        return self.push(w, f.grad(r.w), key)  # m_i; h_i += β m_i

    def answer(self, s: Server, r: Replica, m: Array, key: Key) -> Bytes:
        s.x -= self.gamma * (s.h + m)  # x^{k+1} = x^k - γ g, g = h + mean m_i
        s.h += self.rate(key) * m  # h += β mean m_i
        return self.C.compress(s.x - r.w, key)  # P = C(x^{k+1} - w^k)

    def replica_step(self, r: Replica, broadcast: Message, key: Key) -> None:
        self.C.decompress_add(broadcast.m, r.w, key)  # w^{k+1} = w^k + P

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"beta": 1 / (1 + self.Q.omega(d, n))}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        alpha, omega = self.C.alpha(d, n), self.Q.omega(d, n)
        require_convex(self, c, every=omega > 0)
        require_rate(self, "beta", 1 / (1 + omega), "1/(1 + ω)", exact=True)
        bounds = [alpha / (100 * c.L)]
        if omega:
            joint = n * self.Q.ab(d, n)[0]  # ω for independent draws
            bounds += [n / (160 * joint * c.L_max), sqrt(n * alpha / joint) / (20 * c.L_tilde)]
        if c.mu:
            bounds += [1 / ((1 + omega) * c.mu)]
        return {"gamma": min(bounds)}
