"""Nesterov's accelerated gradient descent: the reference that compressed acceleration has to beat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.compressors import Identity
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Message, Method, Nothing, Step, average, check_step
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class AGD(Method):
    """x^{k+1} = y^k - γ ∇f(y^k),  y^{k+1} = x^{k+1} + β_k (x^{k+1} - x^k); dense both ways.

    β = (1 - √(γμ)) / (1 + √(γμ)) for mu > 0, else β_k = (t_k - 1)/t_{k+1} with
    t_{k+1} = (1 + √(1 + 4 t_k²))/2.  The momentum is deterministic, so every rank keeps it and only
    the mean gradient is sent.
    theory: gamma = 1/L and mu that of the problem (0 if it is not strongly convex).
    """

    gamma: Step = "theory"
    mu: Step = "theory"
    values: str = "f4"

    paper: ClassVar[str] = "Nesterov, Lectures on convex optimization (2018), 2.2.20 and 2.2.22"
    steps: ClassVar[tuple[str, ...]] = ("gamma", "mu")

    @dataclass
    class Replica:
        x: Array
        y: Array
        t: float

    def __post_init__(self) -> None:
        check_step("gamma", self.gamma)
        if self.mu != 0:
            check_step("mu", self.mu)
        Identity(self.values)

    def replica(self, x0: Array) -> Replica:
        return self.Replica(x0.copy(), x0.copy(), 1.0)

    def worker_step(self, w: Nothing, r: Replica, f: Objective, key: Key) -> Message:
        return Message(Identity(self.values).compress(f.grad(r.y), key))

    def server_step(self, s: Nothing, r: Replica, ups: Iterable[tuple[Key, Message]], key: Key) -> Message:
        dense = Identity(self.values)
        return Message(dense.compress(average(dense, ups, r.x.size, key.n), key))

    def follow(self, r: Replica, down: Message, key: Key) -> None:
        x = r.y.copy()
        Identity(self.values).decompress_add(down.m, x, key, -self.gamma)  # x^{k+1}
        r.y = x + self._beta(r) * (x - r.x)
        r.x = x

    def _beta(self, r: Replica) -> float:
        if self.mu > 0:
            root = sqrt(self.gamma * self.mu)
            return (1 - root) / (1 + root)
        t, r.t = r.t, (1 + sqrt(1 + 4 * r.t**2)) / 2
        return (t - 1) / r.t

    def paper_bits(self, up: Message, d: int, key: Key) -> int:
        return Identity(self.values).paper_bits(up.m, d)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        return {"gamma": 1 / c.L, "mu": c.mu or 0.0}
