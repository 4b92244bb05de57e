"""DIANA: workers compress the differences between their gradients and learned shifts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Lossless, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, RateOrDefault, StepSize
from mpicomp.methods.support import shifts
from mpicomp.methods.support.batch_theory import batch_smoothness
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.rates import require_rate
from mpicomp.methods.support.shifted import ShiftedMethod
from mpicomp.methods.support.starts import Start
from mpicomp.problems.constants import Constants


@dataclass(frozen=True)
class DIANA(ShiftedMethod, EstimatingMethod):
    """Algorithm 1.  The shifts h_i tend to ∇f_i(x*), so the compressed vectors tend to 0::

        worker i   m_i = C_i(∇f_i(x^k) - h_i^k);   h_i^{k+1} = h_i^k + α m_i
        server     m = mean m_i
        all        g^k = h^k + m;   x^{k+1} = x^k - γ g^k;   h^{k+1} = h^k + α m

    The shifts start at h_i^0 = 0, or as ``start`` says (``support.starts``); the theorems allow any start.
    h = mean h_i in every round.  alpha defaults to 1/(1 + ω).
    With ``batch``, the mean gradient over that many samples replaces ∇f_i(x^k); worker i draws new samples in
    each round.  The shifts remove the variance of compression but not the variance of the samples, so x
    converges to a neighbourhood of x* (VR-DIANA removes both).
    theory: for convex f_i and α ≤ 1/(1 + ω), gamma = 1/((1 + 6A) L_max), A of the AB-inequality, ω/n for
    independent compressors.  Where some f_i is not convex, or not known to be,
    gamma = 1/(L + L_+ √A/(1 - √ρ)) with ρ = 1 - 2α + α² (1 + ω), derived in ``support.shifts``.  For
    α = 1/(1 + ω) this is at least 1/(L + 2 (1 + ω) L_+ √A), the rate of Li, Richtárik, arXiv 2006.07013.
    On batches of b, for convex f_ij, gamma = 1/((1 + 6A) L_max + 2 (5A + 1/n) L_ij/b), derived in
    ``support.shifts``.  Where samples have a variance of at most σ² for all x, the step is that of full
    gradients, as noise of bounded variance adds a constant to each inequality of the proofs.  Raises
    ``ConfigError`` for other batches.

    Differences from the paper: the server broadcasts m and every rank takes the step; no prox.
    """

    Q: Unbiased
    gamma: StepSize = "theory"
    alpha: RateOrDefault = None
    batch: BatchSize = None
    down: Lossless = Lossless()
    start: Start = "zero"

    recalled: ClassVar[str] = "the constant 6 of gamma for convex f_i; the rate of arXiv 2006.07013"
    paper: ClassVar[str] = "Mishchenko, Gorbunov, Takáč, Richtárik, arXiv 1901.09269, Algorithm 1"
    may_adapt: ClassVar[bool] = True

    @dataclass
    class Replica:
        x: Array
        g: Array
        h: Array

    def estimate(self, r: Replica, broadcast: Message, key: Key) -> None:
        r.g[:] = r.h
        self.down.decompress_add(broadcast.m, r.g, key)  # g^k = h^k + m
        self.down.decompress_add(broadcast.m, r.h, key, self.rate(key))  # h^{k+1} = h^k + α m

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        a, _ = self.Q.ab(d, n)
        S = batch_smoothness(self, c, self.batch)
        if c.mu is None or not c.convex:
            return {"gamma": shifts.step(c, a, self.Q.omega(d, n), self.alpha)}
        require_rate(self, "alpha", 1 / (1 + self.Q.omega(d, n)), "1/(1 + ω)")
        return {"gamma": 1 / shifts.convex_constant(c, a, n, S)}
