"""Heavy ball: gradient descent with Polyak's momentum."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import Curvature, StepSize, ValueFormat
from mpicomp.methods.support.convexity import curvature, require_quadratic
from mpicomp.methods.support.dense import DenseMethod
from mpicomp.problems.constants import Constants


@dataclass(frozen=True)
class HeavyBall(DenseMethod):
    """The vectors are dense in both directions, in the format ``values``::

        worker i   sends ∇f_i(x^k)
        all        v^{k+1} = β v^k - γ mean ∇f_i(x^k)
                   x^{k+1} = x^k + v^{k+1}

    β = (1 - √(γμ))², and v^0 = 0.
    theory, for quadratic f: gamma = 4/(√L + √μ)², so that √β = (√L - √μ)/(√L + √μ).  For other convex f this
    step may cycle for ever; then gamma is a number.  mu is that of the problem, and above 0.
    """

    gamma: StepSize = "theory"
    mu: Curvature = "theory"
    values: ValueFormat = "f4"

    paper: ClassVar[str] = "Polyak, Some methods of speeding up the convergence of iteration methods (1964)"

    @dataclass
    class Replica:
        x: Array
        v: Array

    def replica_step(self, r: Replica, broadcast: Message, key: Key) -> None:
        r.v *= (1 - sqrt(self.gamma * self.mu)) ** 2  # β v^k
        self.down.decompress_add(broadcast.m, r.v, key, -self.gamma)  # v^{k+1} = β v^k - γ g
        r.x = r.x + r.v  # x^{k+1} = x^k + v^{k+1}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        mu = curvature(self, self.mu, c, "take AGD, whose mu may be 0")
        if isinstance(self.gamma, str):
            require_quadratic(self, c)
        return {"gamma": 4 / (sqrt(c.L) + sqrt(mu)) ** 2, "mu": c.mu or 0.0}
