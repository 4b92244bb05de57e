"""LoCoDL: local steps between exchanges, and compressed differences to a model that every rank has."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Annotated, ClassVar

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.checks import number
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Lossless, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import ProbabilityOrTheory, RateOrDefault, StepSize, Value
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.convexity import require_convex
from mpicomp.methods.support.rates import require_rate
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective

_check_mu = number("a number above 0, such as the weight of the penalty", lambda v: 0 < v < inf)


@dataclass(frozen=True)
class LoCoDL(AveragingMethod):
    """f = mean φ_i + ψ, φ_i = f_i - ψ.  Every rank can compute ψ = (μ/4)|x|²::

        worker i   x̂_i = x_i - γ ∇φ_i(x_i) + γ u_i     all   ŷ = y - γ ∇ψ(y) + γ v
        with probability p, the coin the same on all ranks:
        worker i   d_i = Q_i(x̂_i - ŷ)                  all   d̄ = ½ mean d_i
        worker i   x_i = (1-ρ) x̂_i + ρ (ŷ + d̄);   u_i += (α p/γ) (d̄ - d_i)
        all        y = ŷ + ρ d̄;                     v += (α p/γ) d̄
        otherwise  x_i = x̂_i,  y = ŷ

    Local steps send nothing.  A round is the iterations up to and with an exchange, 1/p in the mean, and
    worker i asks for as many gradients.  u_i and v start at 0, and mean u_i + v = 0 after every round.  The
    run reports y.  Without compression and with p = 1, y takes the step γ/2 of gradient descent.
    rho defaults to 1/(1 + A), A of the AB-inequality, ω/n for independent compressors; alpha to
    (2ρ - ρ² (1 + A))/(1 + 2ω), the χ/(1 + 2ω) of the paper.
    theory: gamma = 2/L_max and p = min{1, √((1 + ω)(1 + A) μ/L_max)}, for f_i that are μ-strongly convex,
    ρ ≤ 1/(1 + A) and alpha at most its default.  For any γ < 2/(L_max - μ/2), after t iterations
    E Ψ^t ≤ τ^t Ψ^0, Ψ = mean|x_i - x*|² + |y - x*|² + (γ²/(α p²)) (mean|u_i - ∇φ_i(x*)|² + |v - ∇ψ(x*)|²)
    and τ = max{(1 - γμ/2)², (1 - γ (L_max - μ/2))², 1 - α p²}.

    Proof.  Let z = (x_1, .., x_n, y), s = (u_1, .., u_n, v), |z|² = mean|x_i|² + |y|², and W z = z - z̄ with
    z̄ = (mean x_i + y)/2, an orthogonal projection; W s = s.  The star marks the values at x*.

    1. ẑ - γ s is a gradient step of strongly convex functions, so |ẑ - z* - γ (s - s*)|² ≤ τ |z - z*|².
    2. E d̄ = z̄ - ŷ at ẑ, and mean|x̂_i - ŷ|² ≤ 2 |W ẑ|².  So the exchange moves ẑ by -ρ W ẑ and noise with a
       variance of at most ρ² A |W ẑ|², and |z - z*|² falls by (2ρ - ρ² (1 + A)) |W ẑ|² in the mean.
    3. It moves s by -(α p/γ) times W ẑ and noise, of a second moment of at most (1 + 2ω) |W ẑ|².
    4. The coin falls with probability p, so E Ψ^+ ≤ |ẑ - z*|² - 2γ⟨s - s*, ẑ - z*⟩ + γ²/(α p²) |s - s*|², as
       what is left of |W ẑ|² has a factor of at most 0.  By 1. this is at most
       τ |z - z*|² + (1 - α p²) γ²/(α p²) |s - s*|².

    Differences from the paper: the regulariser is not given but taken from the f_i; the mean goes down, and
    every rank keeps y; A takes the place of ω/n.

    mu     a constant μ of strong convexity that every f_i has, such as the weight of a quadratic penalty
    p      the probability of an exchange after an iteration
    rho    the rate ρ at which x_i and y move to their mean
    alpha  the rate α at which u_i and v move
    """

    Q: Unbiased
    mu: Annotated[float, Value(_check_mu)]
    gamma: StepSize = "theory"
    p: ProbabilityOrTheory = "theory"
    rho: RateOrDefault = None
    alpha: RateOrDefault = None
    down: Lossless = Lossless()

    recalled: ClassVar[str] = "the algorithm, and p of theory"
    paper: ClassVar[str] = "Condat, Maranjyan, Richtárik, LoCoDL (arXiv 2403.04348)"
    needs_function: ClassVar[bool] = True  # at the points of local steps
    iterate: ClassVar[str] = "y"
    starts_at_x0: ClassVar[tuple[str, ...]] = ("x",)

    @dataclass
    class Replica:
        y: Array
        v: Array
        d: Array  # d̄ of the last exchange, by which workers move when the next round begins

    @dataclass
    class Worker:
        x: Array  # x̂_i of the last exchange
        u: Array  # without the last d̄

    def uplink(self, key: Key) -> Unbiased:
        return self.Q

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        x = w.x + self.rho * (r.y + (1 - self.rho) * r.d - w.x)  # x_i = (1-ρ) x̂_i + ρ (ŷ + d̄), y = ŷ + ρ d̄
        u = w.u + self._rate * r.d
        for _ in range(self.iterations(key)):
            x = x - self.gamma * (f.grad(x) - self.mu / 2 * x - u)  # x̂_i
        d = self.Q.compress_difference(x, self._ahead(r, key), key)  # d_i = Q_i(x̂_i - ŷ)
        self.Q.decompress_add(d, u, key, -self._rate)  # u_i -= (α p/γ) d_i
        w.x, w.u = x, u
        return Message(d)

    def replica_step(self, r: Replica, broadcast: Message, key: Key) -> None:
        r.y = self._ahead(r, key)
        r.d = np.zeros_like(r.y)
        self.down.decompress_add(broadcast.m, r.d, key, 0.5)  # d̄ = ½ mean d_i
        r.y += self.rho * r.d  # y = ŷ + ρ d̄
        r.v += self._rate * r.d  # v += (α p/γ) d̄

    def iterations(self, key: Key) -> int:
        """The iterations of the round of ``key``, 1 or more: m with probability p (1-p)^{m-1}."""
        u, m, tail = key.shared("locodl/iterations").uniform(1)[0], 1, 1 - self.p
        while u < tail:  # tail = (1-p)^m
            m, tail = m + 1, tail * (1 - self.p)
        return m

    def _ahead(self, r: Replica, key: Key) -> Array:
        """ŷ of the exchange of the round of ``key``; a new array."""
        y = r.y
        for _ in range(self.iterations(key)):
            y = y - self.gamma * (self.mu / 2 * y - r.v)
        return y

    @property
    def _rate(self) -> float:
        return self.alpha * self.p / self.gamma

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"rho": 1 / (1 + self.Q.ab(d, n)[0]), "alpha": self._largest(d, n)}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_convex(self, c)
        if self.mu > (c.mu or 0.0):
            remedy = f"give mu={c.mu} at most" if c.mu else "take a problem with a quadratic penalty"
            raise ConfigError(
                f"LoCoDL has mu={self.mu} for every f_i, and their mean f has {c.mu}: {remedy}, or give "
                "gamma and p as numbers."
            )
        a, omega = self.Q.ab(d, n)[0], self.Q.omega(d, n)
        require_rate(self, "rho", 1 / (1 + a), "1/(1 + A)")
        require_rate(self, "alpha", self._largest(d, n), "(2ρ - ρ² (1 + A))/(1 + 2ω)")
        return {
            "gamma": 2 / c.L_max,
            "p": min(1.0, sqrt((1 + omega) * (1 + a) * self.mu / c.L_max)),
        }

    def _largest(self, d: int, n: int) -> float:
        """The largest α of theory for ``rho``, which is at most 1/(1 + A)."""
        best = 1 / (1 + self.Q.ab(d, n)[0])
        rho = best if self.rho is None else min(self.rho, best)
        return (2 * rho - rho**2 / best) / (1 + 2 * self.Q.omega(d, n))
