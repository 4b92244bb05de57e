"""Distributed compressed gradient descent (QGD); with a batch, QSGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.compressors import Sparse, Unbiased
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Message, Nothing
from mpicomp.methods.parameters import BatchSize, StepSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.convexity import require_convex
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class DCGD(AveragingMethod):
    """Worker i sends C_i(∇f_i(x^k)); g^k is the mean of what arrives; x^{k+1} = x^k - γ g^k.

    With ``batch`` the gradient is the mean over that many samples of worker i, drawn anew in each round.
    theory, for convex f_i: gamma = 1/(L + 2 A L_max), A of the AB-inequality (ω/n for independent
    compressors): from E|g|² ≤ |∇f|² + A mean |∇f_i|².  It converges to a neighbourhood of radius
    ∝ γ A mean |∇f_i(x*)|².  Samples of variance σ² (of a batch of b, σ²/b) widen it by γ (A + 1/n) σ²/b; the
    step is the same.

    Differences from the paper: the server broadcasts g^k and not x^{k+1}; every rank takes the step.
    """

    Q: Unbiased
    gamma: StepSize = "theory"
    batch: BatchSize = None
    down: Sparse = Sparse()

    paper: ClassVar[str] = "Alistarh et al., QSGD (2017); Khirirat et al. (2018)"

    @dataclass
    class Replica:
        x: Array

    def uplink(self, key: Key) -> Unbiased:
        return self.Q

    def worker_step(self, w: Nothing, r: Replica, f: Objective, key: Key) -> Message:
        return Message(self.Q.compress(gradient(f, r.x, self.batch, key), key))

    def follow(self, r: Replica, broadcast: Message, key: Key) -> None:
        self.down.decompress_add(broadcast.m, r.x, key, -self.gamma)  # x^{k+1} = x^k - γ g^k

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        a, _ = self.Q.ab(d, n)
        if a:  # else it is GD
            require_convex(self, c)
        return {"gamma": 1 / (c.L + 2 * a * c.L_max)}
