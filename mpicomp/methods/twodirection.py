"""2Direction: acceleration with both directions compressed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, NamedTuple

import numpy as np

from mpicomp.coding.bits import Bytes
from mpicomp.compressors import Contractive, Identity, Unbiased
from mpicomp.compressors.base import Array
from mpicomp.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.methods.checks import Step
from mpicomp.problems.base import Constants, Objective

_CAP = 1e9  # Γμ/L̄ beyond which Γ need not grow: all that follows depends on it through 1 + L̄/(Γμ) alone


@dataclass(frozen=True)
class TwoDirection(Method):
    """EF21-P cannot be accelerated, so the server compresses u - q, where q is the step that every rank
    can take with the stale gradient k.  With Rates(Γ) below and a coin c ~ Bern(p) that all draw alike::

        all        θ, γ = Rates(Γ);   y = θ w + (1 - θ) z;   A = (L̄ + Γμ)/γ
        worker i   m_i^y = Q(∇f_i(y) - h_i)
        server     g = h + mean m_i^y;   u = (A u + μ y - g)/(A + μ)
        all        q = (A w + μ y - k)/(A + μ)
        server     P = C(u - q);   x = θ u + (1 - θ) z
        all        w = q + P;   Γ = Γ + γ
                   if c = 1: z = x and k = v, which the server broadcasts dense
        worker i   m_i^z = Q'(∇f_i(z) - h_i);   h_i += β m_i^z
        server     v = (1 - τ) v + τ (h + mean m_i^z);   h += β mean m_i^z

    Rates: θ is the smaller of the positive root of p L̄ Γ θ² + p (L̄ + Γμ) θ = L̄ + Γμ and
    min{1, α/p, τ/p, β/p}/4;  γ = p θ Γ/(1 - p θ).
    Round 0 sends ∇f_i(x⁰) dense, for h_i, h, k and v to start from.  m_i^z of one round travels with
    m_i^y of the next.  The run reports z.

    beta defaults to 1/(1 + ω), and p and tau to the practical choice, without constants of the problem:
    p = min{1/(1 + ω), 1/ρ}, τ = p^{1/3}/(1 + ω)^{2/3}, ρ = r D/((1 - r) U + r V) for messages of U bytes
    up, V down and D dense; r is the weight of the downlink in the cost of communication.
    theory (constants as recalled): Lbar = 660508 max{L/α, L p/(α τ), √(L L_max) p √(ω τ)/(α β √n),
    √(L L_max) √p √(ω τ)/(α √(β n)), L_max ω p²/(β² n), L_max ω/n}.  It is far too careful: tune it.
    """

    C: Contractive
    Q: Unbiased
    Lbar: Step = "theory"
    mu: Step = "theory"
    p: Step = None
    tau: Step = None
    beta: Step = None
    r: float = 0.5
    dense: Identity = Identity()

    paper: ClassVar[str] = "Tyurin, Richtárik, 2Direction (NeurIPS 2023), Algorithm 1"
    steps: ClassVar[tuple[str, ...]] = ("Lbar", "mu")
    zeros: ClassVar[tuple[str, ...]] = ("mu",)
    fractions: ClassVar[tuple[str, ...]] = ("p", "tau", "beta")
    iterate: ClassVar[str] = "z"

    @dataclass
    class Up:
        z: Bytes  # m_i^z of the round before
        y: Bytes

    @dataclass
    class Down:
        sync: Bytes  # x and v, dense, where the coin says so
        P: Bytes

    @dataclass
    class Replica:
        w: Array
        z: Array
        k: Array
        Gamma: float = 1.0

    @dataclass
    class Server:
        u: Array
        v: Array
        h: Array

    @dataclass
    class Worker:
        h: Array
        gradient: Array  # ∇f_i(z), which changes only when z does

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.r, int | float) or not 0 <= self.r <= 1:
            raise ConfigError(f"r={self.r!r}; allowed: the weight of the downlink, a number from 0 to 1.")

    def replica(self, x0: Array) -> Replica:
        return self.Replica(x0.copy(), x0.copy(), np.zeros_like(x0))

    def server(self, x0: Array) -> Server:
        return self.Server(x0.copy(), np.zeros_like(x0), np.zeros_like(x0))

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Up:
        if key.round == 0:
            w.gradient[:] = f.grad(r.z)
            m = self.dense.compress(w.gradient, key)
            self.dense.decompress_add(m, w.h, key)
            return self.Up(np.empty(0, np.uint8), m)
        if key.round == 1:  # nothing has moved yet since round 0
            mz = np.empty(0, np.uint8)
        else:
            if self._syncs(key.before()):
                w.gradient[:] = f.grad(r.z)
            mz = self.Q.compress(w.gradient - w.h, key.named("z"))
            self.Q.decompress_add(mz, w.h, key.named("z"), self.beta)  # h_i += β m_i^z
        y = self._plan(r, key.n).y
        return self.Up(mz, self.Q.compress(f.grad(y) - w.h, key.named("y")))

    def server_step(self, s: Server, r: Replica, ups: Iterable[tuple[Key, Up]], key: Key) -> Down:
        nothing = np.empty(0, np.uint8)
        if key.round == 0:
            for k, up in ups:
                self.dense.decompress_add(up.y, s.h, k, 1 / k.n)
            s.v = s.h.copy()
            return self.Down(self.dense.compress(s.v, key), nothing)
        mz, my = np.zeros_like(s.h), np.zeros_like(s.h)
        for k, up in ups:
            if key.round > 1:
                self.Q.decompress_add(up.z, mz, k.named("z"), 1 / k.n)
            self.Q.decompress_add(up.y, my, k.named("y"), 1 / k.n)
        if key.round > 1:
            s.v = (1 - self.tau) * s.v + self.tau * (s.h + mz)
            s.h += self.beta * mz
        plan = self._plan(r, key.n)
        s.u = (plan.A * s.u + self.mu * plan.y - (s.h + my)) / (plan.A + self.mu)
        P = self.C.compress(s.u - plan.q, key)
        if not self._syncs(key):
            return self.Down(nothing, P)
        x = plan.theta * s.u + (1 - plan.theta) * r.z
        return self.Down(self.dense.compress(np.concatenate([x, s.v]), key), P)

    def follow(self, r: Replica, down: Down, key: Key) -> None:
        d = r.z.size
        if key.round == 0:
            r.k = self.dense.decompress(down.sync, d, key)
            return
        plan = self._plan(r, key.n)
        r.w = plan.q
        self.C.decompress_add(down.P, r.w, key)  # w = q + P
        r.Gamma = plan.Gamma
        if self._syncs(key):
            both = self.dense.decompress(down.sync, 2 * d, key)
            r.z, r.k = both[:d].copy(), both[d:].copy()

    def _plan(self, r: Replica, n: int) -> Plan:
        """What follows from the replica alone, so that every rank computes it."""
        curvature = self.Lbar + r.Gamma * self.mu
        a, b = self.p * self.Lbar * r.Gamma, self.p * curvature
        root = 2 * curvature / (b + sqrt(b * b + 4 * a * curvature))  # the stable form
        slowest = min(self.C.alpha(r.z.size, n), self.tau, self.beta)
        theta = min(root, min(1, slowest / self.p) / 4)
        gamma = self.p * theta * r.Gamma / (1 - self.p * theta)
        y = theta * r.w + (1 - theta) * r.z
        A = curvature / gamma
        q = (A * r.w + self.mu * y - r.k) / (A + self.mu)
        grown = r.Gamma + gamma
        return Plan(theta, y, A, q, r.Gamma if grown * self.mu > _CAP * self.Lbar else grown)

    def _syncs(self, key: Key) -> bool:
        return key.shared("twodirection/coin").coin(self.p)

    def paper_bits(self, up: Up, d: int, key: Key) -> int:
        if key.round == 0:
            return self.dense.paper_bits(up.y, d)
        return self.Q.paper_bits(up.y, d) + (self.Q.paper_bits(up.z, d) if key.round > 1 else 0)

    def defaults(self, d: int, n: int) -> dict[str, float]:
        omega = self.Q.omega(d, n)
        up, down, dense = (C.mean_nbytes(d, n) for C in (self.Q, self.C, self.dense))
        p = self.p or 1 / (1 + omega)
        if self.p is None and self.r > 0:
            p = min(p, ((1 - self.r) * up + self.r * down) / (self.r * dense))
        return {"p": p, "tau": min(1.0, p ** (1 / 3) / (1 + omega) ** (2 / 3)), "beta": 1 / (1 + omega)}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        alpha, omega, p, tau, beta = self.C.alpha(d, n), self.Q.omega(d, n), self.p, self.tau, self.beta
        geometric = sqrt(c.L * c.L_max)
        terms = (
            c.L / alpha,
            c.L * p / (alpha * tau),
            geometric * p * sqrt(omega * tau) / (alpha * beta * sqrt(n)),
            geometric * sqrt(p) * sqrt(omega * tau) / (alpha * sqrt(beta * n)),
            c.L_max * omega * p**2 / (beta**2 * n),
            c.L_max * omega / n,
        )
        return {"Lbar": 660508 * max(terms), "mu": c.mu or 0.0}


class Plan(NamedTuple):
    """What every rank computes from the replica at the start of a round."""

    theta: float
    y: Array
    A: float
    q: Array
    Gamma: float  # the next one
