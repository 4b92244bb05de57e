"""ADIANA: acceleration with compressed differences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from mpicomp.coding.bits import Bytes
from mpicomp.compressors import Sparse, Unbiased
from mpicomp.compressors.base import Array, check_choice
from mpicomp.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.methods.averaging import means
from mpicomp.methods.base import Method, Nothing
from mpicomp.methods.checks import Step
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class ADIANA(Method):
    """With C_i and C'_i drawn independently, and a coin that all ranks draw alike::

        all        x^k = θ1 z^k + θ2 w^k + (1 - θ1 - θ2) y^k
        worker i   m_i = C_i(∇f_i(x^k) - h_i);  c_i = C'_i(∇f_i(w^k) - h_i);  h_i += α c_i
        all        g = h + mean m_i;   h += α mean c_i
                   y^{k+1} = x^k - η g
                   z^{k+1} = β z^k + (1 - β) x^k + (γ/η) (y^{k+1} - x^k)
                   w^{k+1} = y^k with probability p, else w^k

    h = mean h_i throughout; the run reports y.  alpha defaults to 1/(1 + ω).

    parameters  "original": Li, Kovalev, Qian, Richtárik (ICML 2020).  θ2 = 1/2, θ1 = min{1/4, √(ημ/p)},
                γ = η/(2(θ1 + ημ)), β = 1 - γμ; theory: p and eta as there, with A n for ω where the
                compressors are not independent.
                "refined": He, Huang, Yuan, arXiv 2305.16297.  p = 1/(1 + ω), θ2 = 1/(3√n + 3n/ω),
                θ1 = √(μ/L)/3, γ = η/(2θ1 + ημ), β = 2θ1 γ/η; theory: eta = n θ2/(120 ω L).
    All constants as recalled.

    Differences from the papers: the means of m_i and c_i are broadcast and every rank does the rest.
    """

    Q: Unbiased
    eta: Step = "theory"
    mu: Step = "theory"
    p: Step = None
    alpha: Step = None
    parameters: str = "original"
    down: Sparse = Sparse()

    paper: ClassVar[str] = "Li, Kovalev, Qian, Richtárik (ICML 2020); He, Huang, Yuan, arXiv 2305.16297"
    steps: ClassVar[tuple[str, ...]] = ("eta", "mu")
    fractions: ClassVar[tuple[str, ...]] = ("p", "alpha")
    iterate: ClassVar[str] = "y"

    @dataclass
    class Up:
        m: Bytes
        c: Bytes

    @dataclass
    class Down:
        m: Bytes
        c: Bytes

    @dataclass
    class Replica:
        x: Array
        y: Array
        z: Array
        w: Array
        h: Array

    @dataclass
    class Worker:
        h: Array
        gradient: Array  # ∇f_i(w), which changes only when w does

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("parameters", self.parameters, ("original", "refined"))

    def replica(self, x0: Array) -> Replica:
        return self.Replica(x0.copy(), x0.copy(), x0.copy(), x0.copy(), np.zeros_like(x0))

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Up:
        if key.round == 0 or self._moves(key.before()):
            w.gradient = f.grad(r.w)
        m = self.Q.compress_difference(f.grad(r.x), w.h, key.named("m"))
        c = self.Q.compress_difference(w.gradient, w.h, key.named("c"))
        self.Q.decompress_add(c, w.h, key.named("c"), self.alpha)  # h_i += α c_i
        return self.Up(m, c)

    def server_step(self, s: Nothing, r: Replica, ups: Iterable[tuple[Key, Up]], key: Key) -> Down:
        m, c = means(ups, self.Q, r.x, "m", "c")
        return self.Down(self.down.compress(m, key), self.down.compress(c, key))

    def follow(self, r: Replica, down: Down, key: Key) -> None:
        theta1, theta2, gamma, beta = self.weights(key.n, r.x.size)
        y = r.x - self.eta * r.h
        self.down.decompress_add(down.m, y, key, -self.eta)  # y^{k+1} = x^k - η (h + mean m_i)
        self.down.decompress_add(down.c, r.h, key, self.alpha)  # h += α mean c_i
        r.z = beta * r.z + (1 - beta) * r.x + (gamma / self.eta) * (y - r.x)
        if self._moves(key):
            r.w = r.y
        r.y = y
        r.x = theta1 * r.z + theta2 * r.w + (1 - theta1 - theta2) * r.y

    def weights(self, n: int, d: int) -> tuple[float, float, float, float]:
        """θ1, θ2, γ and β for the step size eta."""
        step = self.eta * self.mu
        if self.parameters == "original":
            theta1 = min(1 / 4, sqrt(step / self.p))
            gamma = self.eta / (2 * (theta1 + step))
            return theta1, 1 / 2, gamma, 1 - gamma * self.mu
        omega = self.Q.omega(d, n)
        theta2 = _theta2(omega, n)
        # √(μ/L)/3, with L expressed by eta so that a tuned eta carries it along.
        theta1 = sqrt(step * _refined(omega, n)) / 3
        gamma = self.eta / (2 * theta1 + step)
        return theta1, theta2, gamma, 2 * theta1 / (2 * theta1 + step)

    def _moves(self, key: Key) -> bool:
        return key.shared("adiana/coin").coin(self.p)

    def paper_bits(self, up: Up, d: int, key: Key) -> int:
        return self.Q.paper_bits(up.m, d) + self.Q.paper_bits(up.c, d)

    def defaults(self, d: int, n: int) -> dict[str, float]:
        omega = self.Q.omega(d, n)
        effective = self.Q.ab(d, n)[0] * n
        p = 1 / (1 + omega)
        if self.parameters == "original" and effective > 0:
            p = min(1.0, max(1.0, sqrt(n / (32 * effective)) - 1) / (2 * (1 + omega)))
        return {"p": p, "alpha": 1 / (1 + omega)}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        omega, mu = self.Q.omega(d, n), c.mu
        if not mu:
            raise ConfigError(
                "ADIANA is for strongly convex f, and this problem's mu is 0 or not known: give mu."
            )
        if self.parameters == "refined":
            return {"eta": 1 / (c.L * _refined(omega, n)), "mu": mu}
        effective = self.Q.ab(d, n)[0] * n
        spread = 64 * effective * (2 * self.p * (omega + 1) + 1) ** 2
        return {"eta": min(1 / 2, n / spread if spread else 1 / 2) / c.L_max, "mu": mu}


def _theta2(omega: float, n: int) -> float:
    return 1 / (3 * sqrt(n) + 3 * n / omega) if omega else 0.0


def _refined(omega: float, n: int) -> float:
    """1/(η L) of the refined parameters: 120 ω/(n θ2), whose limit for ω = 0 is 360."""
    return 120 * omega / (n * _theta2(omega, n)) if omega else 360.0
