"""Nesterov's accelerated gradient descent: the reference that compressed acceleration has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import CurvatureOrZero, StepSize, ValueFormat
from mpicomp.methods.support.acceleration import extrapolation, next_weight
from mpicomp.methods.support.convexity import require_convex
from mpicomp.methods.support.dense import DenseMethod
from mpicomp.problems.constants import Constants


@dataclass(frozen=True)
class AGD(DenseMethod):
    """Accelerated gradient descent; the vectors are dense in both directions, in the format ``values``::

        worker i   sends ∇f_i(y^k)
        all        x^{k+1} = y^k - γ mean ∇f_i(y^k)
                   y^{k+1} = x^{k+1} + β_k (x^{k+1} - x^k)

    For mu > 0, β_k = (1 - √(γμ))/(1 + √(γμ)).  For mu = 0, β_k = (t_k - 1)/t_{k+1} with t_0 = 1 and
    t_{k+1} = (1 + √(1 + 4 t_k²))/2.  β_k is deterministic, so every rank keeps the momentum, and only the
    mean gradient is sent.
    theory, for convex f: gamma = 1/L, and mu is that of the problem, 0 if f is merely convex.
    """

    gamma: StepSize = "theory"
    mu: CurvatureOrZero = "theory"
    values: ValueFormat = "f4"

    paper: ClassVar[str] = "Nesterov, Lectures on convex optimization (2018), 2.2.20 and 2.2.22"
    starts_at_x0: ClassVar[tuple[str, ...]] = ("y",)

    @dataclass
    class Replica:
        x: Array
        y: Array
        t: float = 1.0

    def point(self, r: Replica, key: Key) -> Array:
        return r.y

    def replica_step(self, r: Replica, broadcast: Message, key: Key) -> None:
        x = r.y.copy()
        self.down.decompress_add(broadcast.m, x, key, -self.gamma)  # x^{k+1} = y^k - γ g
        beta = extrapolation(r.t, self.gamma, self.mu)
        r.y = x + beta * (x - r.x)  # y^{k+1} = x^{k+1} + β_k (x^{k+1} - x^k)
        r.x, r.t = x, next_weight(r.t)  # t_{k+1}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_convex(self, c, every=False)
        return {"gamma": 1 / c.L, "mu": c.mu or 0.0}
