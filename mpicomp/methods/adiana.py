"""ADIANA: accelerated gradient descent with DIANA's compressed differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Lossless, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.methods.parameters import Choice, CurvatureOrZero, ProbabilityOrDefault, RateOrDefault, StepSize
from mpicomp.methods.support.adiana_convex import Convex
from mpicomp.methods.support.adiana_parameters import Original, Refined, Weights
from mpicomp.methods.support.averaging import Means, means
from mpicomp.methods.support.convexity import curvature, require_convex
from mpicomp.methods.support.rates import require_rate
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective

PARAMETERS: dict[str, type[Original] | type[Refined] | type[Convex]] = {
    "original": Original,
    "refined": Refined,
    "convex": Convex,
}


@dataclass(frozen=True)
class ADIANA(Method):
    """Accelerated DIANA.  C_i, C'_i are drawn independently, the coin with probability p by all ranks alike::

        all        x^k = θ1 z^k + θ2 w^k + (1 - θ1 - θ2) y^k
        worker i   m_i = C_i(∇f_i(x^k) - h_i);  c_i = C'_i(∇f_i(w^k) - h_i);  h_i += α c_i
        server     g = h + mean m_i;   h += α mean c_i
        all        y^{k+1} = x^k - η g
                   z^{k+1} = β z^k + (1 - β) x^k + (γ/η) (y^{k+1} - x^k)
                   w^{k+1} = y^k with probability p, else w^k

    h = mean h_i in every round.  The run reports y.  alpha defaults to 1/(1 + ω).
    theory is for convex f_i and α = 1/(1 + ω).  The sets "original" and "refined" are for strongly convex f:
    on a problem with mu = 0, give mu as a number.  The set "convex" is for convex f.  It takes mu = 0, and
    its θ1 and γ change from round to round.

    parameters  "original", "refined" or "convex": the source of p, of eta in theory, and of the weights θ1,
                θ2, γ and β; see ``support.adiana_parameters`` and, with a proof, ``support.adiana_convex``.
    sends       "means": mean m_i and mean c_i go down, and every rank keeps h and forms g.  "gradient":
                g goes down and the server keeps h.  g is dense.  It is the smaller message if the means
                are nearly dense: for RandK from about n K = 0.6 d on.  With ``down=Lossless("f4")`` the
                rounding of g vanishes with g, while the rounding of mean c_i would stay in h.

    Differences from the papers: they broadcast y^{k+1}; here it follows from g.  The set "convex" is ours.

    eta  the step size η
    p    the probability with which w^k becomes y^k
    """

    Q: Unbiased
    eta: StepSize = "theory"
    mu: CurvatureOrZero = "theory"
    p: ProbabilityOrDefault = None
    alpha: RateOrDefault = None
    parameters: Annotated[str, Choice(tuple(PARAMETERS))] = "original"
    sends: Annotated[str, Choice(("means", "gradient"))] = "means"
    down: Lossless = Lossless()

    recalled: ClassVar[str] = "the constants of the sets original and refined"
    paper: ClassVar[str] = "Li, Kovalev, Qian, Richtárik (ICML 2020); He, Huang, Yuan, arXiv 2305.16297"
    needs_function: ClassVar[bool] = True  # at two points
    iterate: ClassVar[str] = "y"
    starts_at_x0: ClassVar[tuple[str, ...]] = ("x", "z", "w")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.mu, str) and (self.mu == 0) != (self.parameters == "convex"):
            raise ConfigError(
                f"ADIANA has mu={self.mu} with parameters={self.parameters!r}; allowed: mu=0 with 'convex', "
                "and a mu above 0 with the others."
            )

    @dataclass
    class Up:
        m: Bytes
        c: Bytes

    @dataclass
    class Down:
        m: Bytes  # mean m_i, or g
        c: Bytes  # mean c_i, or nothing

    @dataclass
    class Replica:
        x: Array
        y: Array
        z: Array
        w: Array
        h: Array  # 0 where the server keeps it

    @dataclass
    class Server:
        h: Array  # 0 where every rank keeps it

    @dataclass
    class Worker:
        h: Array
        gradient: Array  # ∇f_i(w), which changes only when w does

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Up:
        if key.round == 0 or self._moves(key.before()):
            w.gradient = f.grad(r.w)  # ∇f_i(w^k), where w has moved
        m = self.Q.compress_difference(f.grad(r.x), w.h, key.named("m"))  # m_i = C_i(∇f_i(x^k) - h_i)
        c = self.Q.compress_difference(w.gradient, w.h, key.named("c"))  # c_i = C'_i(∇f_i(w^k) - h_i)
        self.Q.decompress_add(c, w.h, key.named("c"), self.alpha)  # h_i += α c_i
        return self.Up(m, c)

    def server_step(self, s: Server, r: Replica, key: Key) -> Means:
        return means(self.Q, r.x, key, ["m", "c"], lambda m, c: self._answer(s, m, c, key))

    def _answer(self, s: Server, m: Array, c: Array, key: Key) -> Down:
        if self.sends == "means":
            return self.Down(self.down.compress(m, key), self.down.compress(c, key))
        g = s.h + m  # g = h + mean m_i
        s.h += self.alpha * c  # h += α mean c_i
        return self.Down(self.down.compress(g, key), np.empty(0, np.uint8))

    def replica_step(self, r: Replica, broadcast: Down, key: Key) -> None:
        gamma, beta = self.weights(key.n, r.x.size, key.round)[2:]
        theta1, theta2 = self.weights(key.n, r.x.size, key.round + 1)[:2]
        y = r.x - self.eta * r.h
        self.down.decompress_add(broadcast.m, y, key, -self.eta)  # y^{k+1} = x^k - η g, g = h + mean m_i
        if self.sends == "means":
            self.down.decompress_add(broadcast.c, r.h, key, self.alpha)  # h += α mean c_i
        r.z = beta * r.z + (1 - beta) * r.x + (gamma / self.eta) * (y - r.x)  # z^{k+1}
        if self._moves(key):
            r.w = r.y  # w^{k+1} = y^k
        r.y = y  # y^{k+1}
        r.x = theta1 * r.z + theta2 * r.w + (1 - theta1 - theta2) * r.y  # x^{k+1}

    def _moves(self, key: Key) -> bool:
        return key.shared("adiana/coin").coin(self.p)

    def paper_bits(self, up: Up, d: int, key: Key) -> int:
        first, second = key.named("m"), key.named("c")
        return self.Q.paper_bits(up.m, d, first) + self.Q.paper_bits(up.c, d, second)

    def paper_bits_down(self, broadcast: Down, d: int, key: Key) -> int:
        return sum(self.down.paper_bits(buf, d, key) for buf in (broadcast.m, broadcast.c) if len(buf))

    def weights(self, n: int, d: int, k: int) -> Weights:
        """The weights θ1, θ2, γ and β of round k for the step size eta."""
        return self._set(d, n).weights(self.eta, self.mu, self.p, k)

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"p": self._set(d, n).p(), "alpha": 1 / (1 + self.Q.omega(d, n))}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        if isinstance(self.eta, str):
            require_convex(self, c)
            require_rate(self, "alpha", 1 / (1 + self.Q.omega(d, n)), "1/(1 + ω)", exact=True)
        if self.parameters != "convex":
            curvature(self, self.mu, c, "give parameters='convex'")
        mu = 0.0 if self.parameters == "convex" else c.mu or 0.0
        return {"eta": self._set(d, n).eta(c, self.p), "mu": mu}

    def _set(self, d: int, n: int) -> Original | Refined | Convex:
        return PARAMETERS[self.parameters](self.Q.omega(d, n), self.Q.ab(d, n)[0] * n, n)
