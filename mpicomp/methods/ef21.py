"""EF21: error feedback that converges without bounded gradients."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from mpicomp.compressors import Contractive, Sparse
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.averaging import AveragingMethod
from mpicomp.methods.base import Message, Step, check_step, require
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class EF21(AveragingMethod):
    """Algorithm 2::

        worker i   c_i = C(∇f_i(x^k) - g_i^{k-1});   g_i^k = g_i^{k-1} + c_i       (g_i^{-1} = 0)
        all        g^k = g^{k-1} + mean c_i;   x^{k+1} = x^k - γ g^k

    g = mean g_i throughout.
    theory: gamma = 1/(L + L̃ √(β/θ)), Theorem 1, √(β/θ) = √(1-α)/(1 - √(1-α)).

    Differences from the paper: the mean is broadcast and every rank takes the step.
    """

    C: Contractive
    gamma: Step = "theory"
    down: Sparse = Sparse()

    paper: ClassVar[str] = "Richtárik, Sokolov, Fatkhullin, EF21 (NeurIPS 2021), Algorithm 2"

    @dataclass
    class Replica:
        x: Array
        g: Array

    @dataclass
    class Worker:
        g: Array

    def __post_init__(self) -> None:
        require("EF21", "C", self.C, Contractive)
        require("EF21", "down", self.down, Sparse)
        check_step("gamma", self.gamma)

    def replica(self, x0: Array) -> Replica:
        return self.Replica(x0.copy(), np.zeros_like(x0))

    def worker(self, x0: Array) -> Worker:
        return self.Worker(np.zeros_like(x0))

    def uplink(self, key: Key) -> Contractive:
        return self.C

    def downlink(self) -> Sparse:
        return self.down

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        c = self.C.compress(f.grad(r.x) - w.g, key)
        self.C.decompress_add(c, w.g, key)  # g_i^k = g_i^{k-1} + c_i
        return Message(c)

    def follow(self, r: Replica, down: Message, key: Key) -> None:
        self.down.decompress_add(down.m, r.g, key)  # g^k = g^{k-1} + mean c_i
        r.x -= self.gamma * r.g  # x^{k+1} = x^k - γ g^k

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        root = sqrt(1 - self.C.alpha(d, n))
        return {"gamma": 1 / (c.L + c.L_tilde * root / (1 - root))}
