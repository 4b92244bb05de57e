"""Gradient descent: the uncompressed reference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from mpicomp.compressors import Identity
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Message, Method, Nothing, Step, average, check_step
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class GD(Method):
    """x^{k+1} = x^k - γ ∇f(x^k), dense in both directions in the format ``values``.

    theory: gamma = 1/L.
    """

    gamma: Step = "theory"
    values: str = "f4"

    paper: ClassVar[str] = "Cauchy (1847); step size as in Nesterov, Lectures on convex optimization, 1.2.3"

    @dataclass
    class Replica:
        x: Array

    def __post_init__(self) -> None:
        check_step("gamma", self.gamma)
        Identity(self.values)

    def replica(self, x0: Array) -> Replica:
        return self.Replica(x0.copy())

    def worker_step(self, w: Nothing, r: Replica, f: Objective, key: Key) -> Message:
        return Message(Identity(self.values).compress(f.grad(r.x), key))

    def server_step(self, s: Nothing, r: Replica, ups: Iterable[tuple[Key, Message]], key: Key) -> Message:
        dense = Identity(self.values)
        return Message(dense.compress(average(dense, ups, r.x.size, key.n), key))

    def follow(self, r: Replica, down: Message, key: Key) -> None:
        Identity(self.values).decompress_add(down.m, r.x, key, -self.gamma)

    def paper_bits(self, up: Message, d: int, key: Key) -> int:
        return Identity(self.values).paper_bits(up.m, d)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        return {"gamma": 1 / c.L}
