"""A method, a compressor and a problem as a user writes them, in a file of the user's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpicomp import Constants, Objective, Problem
from mpicomp.compressors import Contractive, Lossless
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import StepSize
from mpicomp.methods.support.averaging import AveragingMethod


@dataclass(frozen=True)
class Plain(AveragingMethod):
    """Gradients compressed, without feedback."""

    C: Contractive
    gamma: StepSize = "theory"
    down: Lossless = Lossless()

    @dataclass
    class Replica:
        x: np.ndarray

    def uplink(self, key):
        return self.C

    def worker_step(self, w, r, f, key):
        return Message(self.C.compress(f.grad(r.x), key))

    def replica_step(self, r, broadcast, key):
        self.down.decompress_add(broadcast.m, r.x, key, -self.gamma)

    def theory(self, c, d, n):
        return {"gamma": 1 / c.L}


@dataclass(frozen=True)
class First(Contractive):
    """The first k coordinates."""

    k: int

    def compress(self, x, key):
        return np.asarray(x[: self.k], dtype=np.float64).copy().view(np.uint8)

    def decompress_add(self, buf, out, key, scale=1.0):
        out[: self.k] += scale * buf.view(np.float64)

    def nbytes(self, d):
        return 8 * self.k

    def paper_bits(self, buf, d, key):
        return 32 * self.k

    def alpha(self, d, n):
        return self.k / d


@dataclass(frozen=True)
class Distance(Objective):
    to: np.ndarray

    def value(self, x):
        return 0.5 * float((x - self.to) @ (x - self.to))

    def grad(self, x):
        return x - self.to


@dataclass(frozen=True)
class Centre(Problem):
    """f(x) = (1/n) sum_i |x - i|^2 / 2."""

    d: int = 5

    def dimension(self):
        return self.d

    def objective(self, i, n):
        return Distance(np.full(self.d, float(i)))

    def constants(self, n):
        return Constants(L=1.0, L_i=(1.0,) * n, L_plus=1.0, L_pm=0.0, mu=1.0, convex=True)


class Helper:
    pass
