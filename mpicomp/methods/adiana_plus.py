"""ADIANA+: ADIANA whose workers compress in coordinates that are whitened by smoothness matrices."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.base.checks import theory_factor
from mpicomp.compressors import Lossless, Unbiased
from mpicomp.methods.adiana import ADIANA
from mpicomp.methods.parameters import Curvature, ProbabilityOrTheory, RateOrTheory, StepSize
from mpicomp.methods.support.convexity import curvature, require_convex
from mpicomp.methods.support.rates import require_rate
from mpicomp.methods.support.whitening import WhitenedMethod
from mpicomp.problems.constants import Constants


@dataclass(frozen=True)
class ADIANAPlus(WhitenedMethod):
    """ADIANA with parameters="original", and with whitened compressors in place of C_i and C'_i.

    These are C̃_i(v) = L_i^{1/2} C_i(L_i^{†1/2} v), and C̃'_i made from C'_i in the same way::

        round 0    worker i sends L_i^{1/2}, L_i being the smoothness matrix of f_i
        all        x^k = θ1 z^k + θ2 w^k + (1 - θ1 - θ2) y^k
        worker i   m_i = C̃_i(∇f_i(x^k) - h_i);  c_i = C̃'_i(∇f_i(w^k) - h_i);  h_i += α c_i
        all        g = h + mean m_i;   h += α mean c_i
                   y^{k+1} = x^k - η g
                   z^{k+1} = β z^k + (1 - β) x^k + (γ/η) (y^{k+1} - x^k)
                   w^{k+1} = y^k with probability p, else w^k

    h = mean h_i in every round.  The run reports y.  θ1, θ2, γ, β follow from eta, mu and p as in ADIANA.
    ``DCGDPlus`` says which C_i is made of ``Q``.
    theory, for convex f_i and strongly convex f: alpha = 1/(1 + ω_max) and, with that alpha, eta =
    min{1/(2L), n/(64 𝓛_max (2p(1 + ω_max) + 1)²)}, p = min{1, max{1, √(nL/(32𝓛_max)) - 1}/(2(1 + ω_max))}.
    If the workers' draws depend on each other, 𝓛_max takes the place of 𝓛_max/n.

    The steps of a round are those of ``ADIANA`` with the compressor ``support.whitening.Whitened``.
    Differences from the papers: the means of m_i and c_i are broadcast and every rank does the rest.

    eta  the step size η
    p    the probability with which w^k becomes y^k
    """

    Q: Unbiased
    eta: StepSize = "theory"
    mu: Curvature = "theory"
    p: ProbabilityOrTheory = "theory"
    alpha: RateOrTheory = "theory"
    down: Lossless = Lossless()

    recalled: ClassVar[str] = "the algorithm and the constants of theory"
    paper: ClassVar[str] = (
        "Safaryan, Hanzely, Richtárik (NeurIPS 2021), ADIANA+; Li, Kovalev, Qian, Richtárik (ICML 2020)"
    )
    iterate: ClassVar[str] = "y"
    starts_at_x0: ClassVar[tuple[str, ...]] = ADIANA.starts_at_x0
    Up: ClassVar[type] = ADIANA.Up
    Down: ClassVar[type] = ADIANA.Down
    Replica: ClassVar[type] = ADIANA.Replica

    @dataclass
    class Worker:
        h: Array
        gradient: Array
        root: Array
        inverse: Array

    def plain(self, Q: Unbiased) -> ADIANA:
        return ADIANA(Q, eta=self.eta, mu=self.mu, p=self.p, alpha=self.alpha, down=self.down)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        asked = isinstance(self.eta, str)
        if asked:
            require_convex(self, c)
        curvature(self, self.mu, c, "take AGD, whose mu may be 0")
        spread, omega = self.spread(c, d, n)
        if asked:
            require_rate(self, "alpha", 1 / (1 + omega), "1/(1 + ω_max)", exact=True)
        p = min(1.0, max(1.0, sqrt(c.L / (32 * spread)) - 1 if spread else inf) / (2 * (1 + omega)))
        chosen = p * theory_factor("p", self.p) if isinstance(self.p, str) else self.p
        crowded = 64 * spread * (2 * chosen * (1 + omega) + 1) ** 2
        eta = min(1 / (2 * c.L), 1 / crowded if crowded else inf)
        return {"eta": eta, "mu": c.mu or 0.0, "p": p, "alpha": 1 / (1 + omega)}
