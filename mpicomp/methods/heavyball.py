"""Heavy ball: gradient descent with Polyak's momentum."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.compressors import Compressor, Identity
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Message, Nothing
from mpicomp.methods.parameters import Curvature, StepSize, ValueFormat
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.convexity import curvature, require_quadratic
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class HeavyBall(AveragingMethod):
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

    def uplink(self, key: Key) -> Compressor:
        return self.in_these_blocks(Identity(self.values))

    @property
    def down(self) -> Compressor:  # type: ignore[override]
        return self.in_these_blocks(Identity(self.values))

    def worker_step(self, w: Nothing, r: Replica, f: Objective, key: Key) -> Message:
        return Message(self.uplink(key).compress(f.grad(r.x), key))

    def replica_step(self, r: Replica, broadcast: Message, key: Key) -> None:
        r.v *= (1 - sqrt(self.gamma * self.mu)) ** 2  # β v^k
        self.down.decompress_add(broadcast.m, r.v, key, -self.gamma)  # v^{k+1} = β v^k - γ g
        r.x = r.x + r.v  # x^{k+1} = x^k + v^{k+1}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        mu = curvature(self, self.mu, c, "take AGD, whose mu may be 0")
        if isinstance(self.gamma, str):
            require_quadratic(self, c)
        return {"gamma": 4 / (sqrt(c.L) + sqrt(mu)) ** 2, "mu": c.mu or 0.0}
