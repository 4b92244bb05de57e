"""MARINA: compressed gradient differences, and now and then a dense synchronisation."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from mpicomp.compressors import Identity, Sparse, Unbiased
from mpicomp.compressors.base import Array, check_probability
from mpicomp.keys import Key
from mpicomp.methods.averaging import AveragingMethod
from mpicomp.methods.base import Message, Step, check_step, require
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class MARINA(AveragingMethod):
    """Algorithm 1.  With c^k ~ Bern(p), a coin that all ranks draw alike (c^0 = 1)::

        4    x^{k+1} = x^k - γ g^k
        5-6  worker i sends  ∇f_i(x^{k+1})                        if c^k = 1
                             Q_i(∇f_i(x^{k+1}) - ∇f_i(x^k))       otherwise
        7    g^{k+1} = the mean, or g^k + the mean

    p defaults to (mean bytes of Q) / (bytes of ``sync``), ζ/d of the paper for sparsifiers: dense and
    compressed messages then cost the same on average.
    theory: gamma = 1/(L + √((1-p)/p ((A - B) L_+² + B L_±²))), Szlendak, Tyurin, Richtárik (2022),
    Theorem 4; for independent compressors it is Theorem 2.1 of Gorbunov et al. with L_+ for L.

    Differences from the paper: the mean is broadcast and every rank forms g and takes the step.
    """

    Q: Unbiased
    gamma: Step = "theory"
    p: Step = None
    sync: Identity = Identity()
    down: Sparse = Sparse()

    paper: ClassVar[str] = "Gorbunov, Burlachenko, Li, Richtárik, MARINA (ICML 2021), Algorithm 1"

    @dataclass
    class Replica:
        x: Array
        g: Array

    @dataclass
    class Worker:
        gradient: Array  # ∇f_i at the previous iterate: one gradient a round

    def __post_init__(self) -> None:
        require("MARINA", "Q", self.Q, Unbiased)
        require("MARINA", "sync", self.sync, Identity)
        require("MARINA", "down", self.down, Sparse)
        check_step("gamma", self.gamma)
        if self.p is not None:
            check_probability("p", self.p)

    def replica(self, x0: Array) -> Replica:
        return self.Replica(x0.copy(), np.zeros_like(x0))

    def worker(self, x0: Array) -> Worker:
        return self.Worker(np.zeros_like(x0))

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        gradient = f.grad(r.x)
        v = gradient if self._dense(key) else gradient - w.gradient
        w.gradient[:] = gradient  # a copy: whose array it is, is f's business
        return Message(self.uplink(key).compress(v, key))  # 5-6

    def follow(self, r: Replica, down: Message, key: Key) -> None:
        if self._dense(key):
            r.g[:] = 0
        self.down.decompress_add(down.m, r.g, key)  # 7
        r.x -= self.gamma * r.g  # 4, of the next round

    def _dense(self, key: Key) -> bool:
        return key.round == 0 or key.shared("marina/coin").coin(self.p)

    def uplink(self, key: Key) -> Unbiased:
        return self.sync if self._dense(key) else self.Q

    def downlink(self) -> Sparse:
        return self.down

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"p": min(1.0, self.Q.mean_nbytes(d, n) / self.sync.mean_nbytes(d, n))}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        a, b = self.Q.ab(d, n)
        spread = (1 - self.p) / self.p * ((a - b) * c.L_plus**2 + b * c.L_pm**2)
        return {"gamma": 1 / (c.L + sqrt(spread))}
