"""EF21-P: a compressed model downlink, with DIANA's compressed uplink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.compressors import Contractive, Identity, Unbiased
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.averaging import mean
from mpicomp.methods.base import Message, Method
from mpicomp.methods.checks import Step
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class EF21P(Method):
    """The server keeps the model x, everyone a shifted model w, and only P, compressed, goes down::

        worker i   m_i = Q_i(∇f_i(w^k) - h_i);   h_i += β m_i
        server     g = h + mean m_i;   h += β mean m_i
                   x^{k+1} = x^k - γ g;   P = C(x^{k+1} - w^k)
        all        w^{k+1} = w^k + P

    Q = Identity() is plain EF21-P.  beta defaults to 1/(1 + ω).  The run reports w.
    theory (constants as recalled): gamma = min{n/(160 ω L_max), √(nα)/(20 √ω L̃), α/(100 L), 1/((1+ω) μ)}.
    """

    C: Contractive
    Q: Unbiased = Identity()
    gamma: Step = "theory"
    beta: Step = None

    paper: ClassVar[str] = "Gruntkowska, Tyurin, Richtárik, EF21-P and friends (ICML 2023), Algorithm 1"
    fractions: ClassVar[tuple[str, ...]] = ("beta",)
    iterate: ClassVar[str] = "w"
    at_x0: ClassVar[tuple[str, ...]] = ("x",)

    @dataclass
    class Replica:
        w: Array

    @dataclass
    class Server:
        x: Array
        h: Array

    @dataclass
    class Worker:
        h: Array

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        m = self.Q.compress_difference(f.grad(r.w), w.h, key)
        self.Q.decompress_add(m, w.h, key, self.beta)  # h_i += β m_i
        return Message(m)

    def server_step(self, s: Server, r: Replica, ups: Iterable[tuple[Key, Message]], key: Key) -> Message:
        m = mean(ups, self.Q, r.w, 1 / key.n)
        s.x -= self.gamma * (s.h + m)  # x^{k+1} = x^k - γ g
        s.h += self.beta * m
        return Message(self.C.compress(s.x - r.w, key))  # P

    def follow(self, r: Replica, down: Message, key: Key) -> None:
        self.C.decompress_add(down.m, r.w, key)  # w^{k+1} = w^k + P

    def paper_bits(self, up: Message, d: int, key: Key) -> int:
        return self.Q.paper_bits(up.m, d)

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"beta": 1 / (1 + self.Q.omega(d, n))}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        alpha, omega = self.C.alpha(d, n), self.Q.omega(d, n)
        bounds = [alpha / (100 * c.L)]
        if omega:
            bounds += [n / (160 * omega * c.L_max), sqrt(n * alpha / omega) / (20 * c.L_tilde)]
        if c.mu:
            bounds += [1 / ((1 + omega) * c.mu)]
        return {"gamma": min(bounds)}
