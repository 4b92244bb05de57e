"""ADEF: accelerated gradient descent with compressed differences and error feedback together."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Contractive, Lossless
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.methods.parameters import BatchSize, CurvatureOrZero, StepSize
from mpicomp.methods.support.acceleration import extrapolation, next_weight
from mpicomp.methods.support.averaging import Means, means
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class ADEF(Method):
    """AGD along an estimate g; s_i is the gradient of f_i at y^k, on a batch or in full::

        worker i   c_i = C(s_i - h_i^{k-1});   h_i^k = h_i^{k-1} + c_i
                   δ_i = s_i - h_i^k + ρ_k e_i^{k-1};   m_i = C'(δ_i);   e_i^k = δ_i - m_i
        all        g^k = h^k + mean m_i,   h^k = mean h_i^k;   x^{k+1} = y^k - γ g^k
                   y^{k+1} = x^{k+1} + β_k (x^{k+1} - x^k)

    h_i and e_i start at 0.  C and C' are the compressor ``C`` with draws of their own.  β_k and t_k are those
    of ``AGD``, for mu = 0 and for mu > 0, and ρ_k is √(1 - 1/t_k) = t_{k-1}/t_k, or 1 - √(γμ).  Without
    compression it is AGD.

    ρ_k gives an error the weight of the step in which it arose, so none is lost.  For mu = 0 let
    z^{k+1} = x^k + t_k (x^{k+1} - x^k), z^0 = x^0; then y^k = x^k + (z^k - x^k)/t_k and
    z^{k+1} = z^k - γ t_k g^k, and z^{k+1} - γ t_k mean e_i^k = x^0 - γ Σ_j t_j mean s_i(y^j).
    For mu > 0 and r = √(γμ) let z^{k+1} = x^k + (x^{k+1} - x^k)/r; then
    z^{k+1} = (1-r) z^k + r y^k - (γ/r) g^k, and z^{k+1} - (γ/r) mean e_i^k follows this rule with mean s_i
    in place of g.

    theory: none, so gamma has to be a number; mu="theory" is that of the problem, 0 if f is merely convex.

    Differences from the paper: its weights A_k and a_k are here γ (t_k² - t_k) and γ t_k, those of AGD, and
    its memory is -γ t_k e_i.  These weights, mu, batches and the starts at 0 are ours.  The means are
    broadcast and every rank takes the step.

    mu  a constant μ of f's strong convexity, or 0 for convex f
    """

    C: Contractive
    gamma: StepSize = "theory"  # which is refused: there is none
    mu: CurvatureOrZero = 0.0
    batch: BatchSize = None
    down: Lossless = Lossless()

    recalled: ClassVar[str] = "the algorithm"
    paper: ClassVar[str] = "Gao, Rodomanov, Rack, Stich, ADEF (arXiv 2503.08427)"
    starts_at_x0: ClassVar[tuple[str, ...]] = ("y",)

    @dataclass
    class Up:
        c: Bytes
        m: Bytes

    @dataclass
    class Down:
        c: Bytes  # mean c_i
        m: Bytes  # mean m_i

    @dataclass
    class Replica:
        x: Array
        y: Array
        h: Array
        t: float = 1.0

    @dataclass
    class Worker:
        h: Array
        e: Array

    def point(self, r: Replica, key: Key) -> Array:
        return r.y

    def _kept(self, r: Replica) -> float:
        """ρ_k."""
        return 1 - sqrt(self.gamma * self.mu) if self.mu > 0 else sqrt(1 - 1 / r.t)

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Up:
        s = gradient(f, r.y, self.batch, key)
        first, second = key.named("c"), key.named("m")
        c = self.C.compress_difference(s, w.h, first)  # c_i = C(s_i - h_i^{k-1})
        self.C.decompress_add(c, w.h, first)  # h_i^k = h_i^{k-1} + c_i
        w.e = (s - w.h) + self._kept(r) * w.e  # δ_i
        m = self.C.compress(w.e, second)  # m_i = C'(δ_i)
        self.C.decompress_add(m, w.e, second, -1.0)  # e_i^k = δ_i - m_i
        return self.Up(c, m)

    def residual(self, w: Worker) -> Array:
        return w.e

    def server_step(self, s: object, r: Replica, key: Key) -> Means:
        return means(self.C, r.x, key, ["c", "m"], lambda c, m: self._answer(c, m, key))

    def _answer(self, c: Array, m: Array, key: Key) -> Down:
        return self.Down(self.down.compress(c, key), self.down.compress(m, key))

    def replica_step(self, r: Replica, broadcast: Down, key: Key) -> None:
        self.down.decompress_add(broadcast.c, r.h, key)  # h^k = h^{k-1} + mean c_i
        x = r.y - self.gamma * r.h
        self.down.decompress_add(broadcast.m, x, key, -self.gamma)  # x^{k+1} = y^k - γ g^k
        beta = extrapolation(r.t, self.gamma, self.mu)
        r.y = x + beta * (x - r.x)  # y^{k+1} = x^{k+1} + β_k (x^{k+1} - x^k)
        r.x, r.t = x, next_weight(r.t)  # t_{k+1}

    def paper_bits(self, up: Up, d: int, key: Key) -> int:
        first, second = key.named("c"), key.named("m")
        return self.C.paper_bits(up.c, d, first) + self.C.paper_bits(up.m, d, second)

    def paper_bits_down(self, broadcast: Down, d: int, key: Key) -> int:
        return sum(self.down.paper_bits(buf, d, key) for buf in (broadcast.c, broadcast.m))

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        if isinstance(self.gamma, str):
            raise ConfigError("ADEF has no theory step size; give gamma as a number.")
        return {"mu": c.mu or 0.0}
