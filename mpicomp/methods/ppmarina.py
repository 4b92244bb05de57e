"""PP-MARINA: MARINA with partial participation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Identity, Lossless, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import Count, ProbabilityOrDefault, StepSize
from mpicomp.methods.support.coins import TwoPointMethod
from mpicomp.methods.support.estimating import TwoPoints
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class PPMARINA(TwoPointMethod):
    """Algorithm 4.  The coin c^k ~ Bern(p) is the same on all ranks; c^0 = 1, g^0 = 0::

        all        x^{k+1} = x^k - γ g^k
        c^k = 1    every worker sends ∇f_i(x^{k+1});                              g^{k+1} = their mean
        c^k = 0    S, r of the n workers, send Q_i(∇f_i(x^{k+1}) - ∇f_i(x^k));    g^{k+1} = g^k + their mean

    S is drawn from the shared key, so every rank knows it.  A worker outside S computes and sends nothing,
    but takes the step.  When it is drawn again, it also asks for the gradient at x^k.
    ``r`` is a number of workers or a fraction of them.
    p defaults to (r/n) (mean bytes of Q) / (bytes of ``sync``), the paper's (r/n) ζ/d for sparsifiers.

    theory: gamma = 1/(L + √((1-p)/p ((A n/r - B) L_+² + (B + (1-B) v) L_±²))), v = (n-r)/(r (n-1)).
    For independent compressors, A = ω/n and B = 0, that is 1/(L + √((1-p)/(pr) (ω L_+² + (n-r)/(n-1) L_±²))).
    It is MARINA's step for r = n, and at least 1/(L_+ (1 + √((1-p)(1+ω)/(pr)))) of Theorem 4.1, which is for
    clients drawn with replacement.  It follows, as in the theorem, from the variance of a compressed round:
    given S, the AB-inequality with a_i = Δ_i in S and 0 elsewhere, times (n/r)², bounds the variance of
    compression by A (n/r) mean_S |Δ_i|² - B |mean_S Δ_i|².  So Q_i need not commute with scaling, as Natural
    does not.  The variance of mean_S Δ_i is v (mean |Δ_i|² - |mean Δ_i|²).

    Raises ``ConfigError`` when it is used with fewer than r workers.

    Differences from the paper: S is drawn without replacement; the mean is broadcast, to all, and every
    rank forms g and takes the step.

    r  the workers that take part in a compressed round, as a count or a fraction
    p  the probability of a dense round
    """

    Q: Unbiased
    r: Count
    gamma: StepSize = "theory"
    p: ProbabilityOrDefault = None
    sync: Identity = Identity()
    down: Lossless = Lossless()

    recalled: ClassVar[str] = "Theorem 4.1"
    paper: ClassVar[str] = "Gorbunov, Burlachenko, Li, Richtárik, MARINA (ICML 2021), Algorithm 4"

    @dataclass
    class Worker:
        gradient: Array  # ∇f_i where the worker last took part

    def senders(self, key: Key) -> Sequence[int]:
        r = self._clients(key.n)
        if self.dense(key):
            return range(key.n)
        return sorted(key.shared("ppmarina/clients").permutation(key.n, 0, r).tolist())

    def worker_step(self, w: Worker, r: TwoPoints, f: Objective, key: Key) -> Message:
        if self.dense(key):
            w.gradient = f.grad(r.x)
            return Message(self.sync.compress(w.gradient, key))  # c^k = 1
        # A worker that sat out the previous round holds a gradient at an older iterate than x^k.
        before = w.gradient if key.worker in self.senders(key.before()) else f.grad(r.previous)
        w.gradient = f.grad(r.x)
        return Message(self.Q.compress_difference(w.gradient, before, key))  # c^k = 0

    def _clients(self, n: int) -> int:
        """The number of workers that ``r`` stands for out of n.  Raises ``ConfigError`` if it exceeds n."""
        r = n if self.r is None else self.r if isinstance(self.r, int) else max(1, round(self.r * n))
        if r > n:
            raise ConfigError(f"r={self.r} of {n} workers; allowed: 1 to {n}, or a fraction below 1.")
        return r

    def weight(self, key: Key) -> float:
        return 1 / (key.n if self.dense(key) else self._clients(key.n))

    def defaults(self, d: int, n: int) -> dict[str, float]:
        share = self._clients(n) / n
        return {"p": min(1.0, share * self.Q.mean_nbytes(d, n) / self.sync.mean_nbytes(d, n))}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        a, b = self.Q.ab(d, n)
        r = self._clients(n)
        v = (n - r) / (r * (n - 1)) if r < n else 0.0
        spread = (a * n / r - b) * c.L_plus**2 + (b + (1 - b) * v) * c.L_pm**2
        return {"gamma": 1 / (c.L + sqrt((1 - self.p) / self.p * spread))}
