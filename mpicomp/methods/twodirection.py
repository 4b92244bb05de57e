"""2Direction: acceleration with both directions compressed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import number
from mpicomp.compressors import Contractive, Identity, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.methods.parameters import CurvatureOrZero, ProbabilityOrDefault, RateOrDefault, StepSize, Value
from mpicomp.methods.support.averaging import Means, means
from mpicomp.methods.support.convexity import require_convex
from mpicomp.methods.support.rates import require_rate
from mpicomp.methods.support.twodirection_rates import Plan, plan, practical, rates, theory
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective

_NOTHING = np.empty(0, np.uint8)
_check_weight = number("the weight of the downlink, a number from 0 to 1", lambda v: 0 <= v <= 1)


@dataclass(frozen=True)
class TwoDirection(Method):
    """EF21-P cannot be accelerated.  Here the server compresses u - q, where q is the step that every rank
    can take with the stale gradient k.  The coin c ~ Bern(p) is the same on all ranks::

        all        θ, γ = rates(Γ);   y = θ w + (1 - θ) z;   A = (L̄ + Γμ)/γ
        worker i   m_i^y = Q(∇f_i(y) - h_i)
        server     g = h + mean m_i^y;   u = (A u + μ y - g)/(A + μ)
        all        q = (A w + μ y - k)/(A + μ)
        server     P = C(u - q);   x = θ u + (1 - θ) z
        all        w = q + P;   Γ = Γ + γ
                   if c = 1: z = x and k = v, which the server broadcasts dense
        worker i   m_i^z = Q'(∇f_i(z) - h_i);   h_i += β m_i^z
        server     v = (1 - τ) v + τ (h + mean m_i^z);   h += β mean m_i^z

    θ, γ and the vectors that follow from them are computed by ``support.twodirection_rates``.  Round 0 sends
    ∇f_i(x⁰) dense: h_i, h, k and v start from it.  m_i^z of one round travels with m_i^y of the next.  The
    run reports z.

    beta defaults to 1/(1 + ω), tau to p^{1/3}/(1 + ω)^{2/3}, and p to
    ``support.twodirection_rates.practical``, which needs no constants of the problem; r in [0, 1] is the
    weight of the downlink in the cost of communication.
    theory, for convex f_i and β ≤ 1/(1 + ω): Lbar is ``support.twodirection_rates.theory``, whose constant is
    far larger than needed: tune Lbar; mu is that of the problem, 0 if f is merely convex.

    C      the server's compressor
    Lbar   the inverse of the step size, L̄
    p      the probability of a round with a dense broadcast
    tau    the rate τ at which v moves
    beta   the rate β at which the shifts h_i move
    r      the weight of the downlink in the cost of communication, by which p is chosen
    dense  how dense messages are sent
    """

    C: Contractive
    Q: Unbiased
    Lbar: StepSize = "theory"
    mu: CurvatureOrZero = "theory"
    p: ProbabilityOrDefault = None
    tau: RateOrDefault = None
    beta: RateOrDefault = None
    r: Annotated[float, Value(_check_weight)] = 0.5
    dense: Identity = Identity()

    recalled: ClassVar[str] = "the algorithm and the constants of Lbar"
    paper: ClassVar[str] = "Tyurin, Richtárik, 2Direction (NeurIPS 2023), Algorithm 1"
    needs_function: ClassVar[bool] = True  # at two points
    inverse_step: ClassVar[bool] = True
    iterate: ClassVar[str] = "z"
    starts_at_x0: ClassVar[tuple[str, ...]] = ("w", "u")

    @dataclass
    class Up:
        z: Bytes  # m_i^z of the round before
        y: Bytes

    @dataclass
    class Down:
        x: Bytes  # dense, where the coin says so; so is v
        v: Bytes
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

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Up:
        if key.round == 0:
            w.gradient = f.grad(r.z)
            m = self.dense.compress(w.gradient, key.named("y"))
            self.dense.decompress_add(m, w.h, key.named("y"))
            return self.Up(_NOTHING, m)
        mz = _NOTHING
        if key.round > 1:  # before that, z has not moved since round 0
            if self._syncs(key.before()):
                w.gradient = f.grad(r.z)
            mz = self.Q.compress_difference(w.gradient, w.h, key.named("z"))  # m_i^z, of the round before
            self.Q.decompress_add(mz, w.h, key.named("z"), self.beta)  # h_i += β m_i^z
        y = self._plan(r, key.n).y
        return self.Up(mz, self.Q.compress_difference(f.grad(y), w.h, key.named("y")))  # m_i^y

    def server_step(self, s: Server, r: Replica, key: Key) -> Means:
        if key.round == 0:
            return means(self.dense, s.h, key, ["y"], lambda h: self._begin(s, h, key))
        sent = ["y"] if key.round == 1 else ["z", "y"]
        return means(self.Q, s.h, key, sent, lambda *m: self._answer(s, r, m, key))

    def _begin(self, s: Server, h: Array, key: Key) -> Down:
        s.h, s.v = h, h.copy()
        return self.Down(_NOTHING, self.dense.compress(s.v, key), _NOTHING)

    def _answer(self, s: Server, r: Replica, m: tuple[Array, ...], key: Key) -> Down:
        *moved, my = m
        for mz in moved:
            s.v = (1 - self.tau) * s.v + self.tau * (s.h + mz)  # v
            s.h += self.beta * mz  # h += β mean m_i^z
        theta, y, A, q, _ = self._plan(r, key.n)
        s.u = (A * s.u + self.mu * y - (s.h + my)) / (A + self.mu)  # u = (A u + μ y - g)/(A + μ)
        P = self.C.compress(s.u - q, key)  # P = C(u - q)
        if not self._syncs(key):
            return self.Down(_NOTHING, _NOTHING, P)
        x = theta * s.u + (1 - theta) * r.z  # x = θ u + (1 - θ) z
        return self.Down(self.dense.compress(x, key), self.dense.compress(s.v, key), P)

    def replica_step(self, r: Replica, broadcast: Down, key: Key) -> None:
        if key.round == 0:
            r.k = self._dense(broadcast.v, r, key)
            return
        _, _, _, r.w, r.Gamma = self._plan(r, key.n)  # w = q;  Γ = Γ + γ
        self.C.decompress_add(broadcast.P, r.w, key)  # w = q + P
        if self._syncs(key):
            r.z = self._dense(broadcast.x, r, key)  # z = x
            r.k = self._dense(broadcast.v, r, key)  # k = v

    def _dense(self, buf: Bytes, r: Replica, key: Key) -> Array:
        """The vector in a dense message, in the precision of the records."""
        return self.dense.decompress(buf, r.w.size, key).astype(r.w.dtype, copy=False)

    def _plan(self, r: Replica, n: int) -> Plan:
        slowest = min(self.C.alpha(r.z.size, n), self.tau, self.beta)
        return plan(r.w, r.z, r.k, self.mu, rates(r.Gamma, self.Lbar, self.mu, self.p, slowest))

    def _syncs(self, key: Key) -> bool:
        return key.shared("twodirection/coin").coin(self.p)

    def paper_bits(self, up: Up, d: int, key: Key) -> int:
        if key.round == 0:
            return self.dense.paper_bits(up.y, d, key)
        z = self.Q.paper_bits(up.z, d, key.named("z")) if key.round > 1 else 0
        return self.Q.paper_bits(up.y, d, key.named("y")) + z

    def paper_bits_down(self, broadcast: Down, d: int, key: Key) -> int:
        if key.round == 0:
            return self.dense.paper_bits(broadcast.v, d, key)
        sync = sum(self.dense.paper_bits(buf, d, key) for buf in (broadcast.x, broadcast.v) if len(buf))
        return sync + self.C.paper_bits(broadcast.P, d, key)

    def defaults(self, d: int, n: int) -> dict[str, float]:
        omega = self.Q.omega(d, n)
        sizes = (C.mean_nbytes(d, n) for C in (self.Q, self.C, self.dense))
        p = self.p or practical(omega, self.r, *sizes)
        return {"p": p, "tau": min(1.0, p ** (1 / 3) / (1 + omega) ** (2 / 3)), "beta": 1 / (1 + omega)}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_convex(self, c, every=isinstance(self.Lbar, str))
        if isinstance(self.Lbar, str):
            require_rate(self, "beta", 1 / (1 + self.Q.omega(d, n)), "1/(1 + ω)")
        alpha, joint = self.C.alpha(d, n), n * self.Q.ab(d, n)[0]
        return {"Lbar": theory(c, n, alpha, joint, self.p, self.tau, self.beta), "mu": c.mu or 0.0}
