"""MARINA: compressed gradient differences, and now and then a dense synchronisation."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.compressors import Identity, Sparse, Unbiased
from mpicomp.compressors.base import Array
from mpicomp.kernels import add_scaled
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import CurvatureOrZero, ProbabilityOrDefault, StepSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.convexity import curvature
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
    Theorem 4; for independent compressors it is Theorem 2.1 of Gorbunov et al. with L_+ for L.  Where L_± is
    a bound alone, and that near L_+, as for GLMs, PermK gains next to nothing by it: tune gamma there.
    mu          a constant of the Polyak-Łojasiewicz condition |∇f|² ≥ 2μ (f - f*), as a number or "theory",
                that of the problem's strong convexity; 0 for none.  With it theory (as recalled) is
                gamma = min{1/(L + √(2 (1-p)/p ((A - B) L_+² + B L_±²))), p/(2μ)}, and
                E f(x^k) - f* ≤ (1 - γμ)^k (f(x^0) - f*).

    Differences from the paper: the mean is broadcast and every rank forms g and takes the step.
    """

    Q: Unbiased
    gamma: StepSize = "theory"
    p: ProbabilityOrDefault = None
    sync: Identity = Identity()
    down: Sparse = Sparse()
    mu: CurvatureOrZero = 0.0

    paper: ClassVar[str] = "Gorbunov, Burlachenko, Li, Richtárik, MARINA (ICML 2021), Algorithm 1"

    @dataclass
    class Replica:
        x: Array
        g: Array

    @dataclass
    class Worker:
        gradient: Array  # ∇f_i at the previous iterate: one gradient a round

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        before, w.gradient = w.gradient, f.grad(r.x)
        if self._dense(key):
            return Message(self.sync.compress(w.gradient, key))
        return Message(self.Q.compress_difference(w.gradient, before, key))  # 5-6

    def follow(self, r: Replica, broadcast: Message, key: Key) -> None:
        if self._dense(key):
            r.g[:] = 0
        self.down.decompress_add(broadcast.m, r.g, key)  # 7
        add_scaled(r.x, r.g, -self.gamma)  # 4, of the next round

    def _dense(self, key: Key) -> bool:
        return key.round == 0 or key.shared("marina/coin").coin(self.p)

    def uplink(self, key: Key) -> Unbiased:
        return self.sync if self._dense(key) else self.Q

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"p": min(1.0, self.Q.mean_nbytes(d, n) / self.sync.mean_nbytes(d, n))}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        a, b = self.Q.ab(d, n)
        spread = (1 - self.p) / self.p * ((a - b) * c.L_plus**2 + b * c.L_pm**2)
        if self.mu == 0:
            return {"gamma": 1 / (c.L + sqrt(spread))}
        mu = curvature(self, self.mu, c, "leave mu at 0")
        return {"gamma": min(1 / (c.L + sqrt(2 * spread)), self.p / (2 * mu)), "mu": c.mu or 0.0}
