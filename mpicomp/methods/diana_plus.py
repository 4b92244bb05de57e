"""DIANA+: DIANA whose workers compress in coordinates that are whitened by smoothness matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Lossless, Unbiased
from mpicomp.methods.diana import DIANA
from mpicomp.methods.parameters import RateOrTheory, StepSize
from mpicomp.methods.support.convexity import require_convex
from mpicomp.methods.support.rates import require_rate
from mpicomp.methods.support.whitening import WhitenedEstimate
from mpicomp.problems.constants import Constants


@dataclass(frozen=True)
class DIANAPlus(WhitenedEstimate):
    """L_i is the smoothness matrix of f_i, which worker i computes from its own shard::

        round 0    worker i sends L_i^{1/2}
        worker i   m_i = C_i(L_i^{†1/2} (∇f_i(x^k) - h_i^k));   h_i^{k+1} = h_i^k + α L_i^{1/2} m_i
        server     m = mean L_i^{1/2} m_i
        all        g^k = h^k + m;   x^{k+1} = x^k - γ g^k;   h^{k+1} = h^k + α m

    h = mean h_i in every round.  C_i as in DCGD+.
    theory, for convex f_i and α ≤ 1/(1 + ω_max): gamma = 1/(L + 6𝓛_max/n), alpha = 1/(1 + ω_max), ω_max the
    largest ω of the C_i, whose steps or odds may differ from worker to worker.

    The steps of a round are those of ``DIANA`` with the compressor ``support.whitening.Whitened``.
    Differences from the papers: the server broadcasts m and every rank takes the step; no prox.
    """

    Q: Unbiased
    gamma: StepSize = "theory"
    alpha: RateOrTheory = "theory"
    down: Lossless = Lossless()

    recalled: ClassVar[str] = "the algorithm and the constants of theory"
    paper: ClassVar[str] = (
        "Safaryan, Hanzely, Richtárik (NeurIPS 2021); Wang, Safaryan, Richtárik (NeurIPS 2022)"
    )
    Replica: ClassVar[type] = DIANA.Replica

    @dataclass
    class Worker:
        h: Array
        root: Array
        inverse: Array

    def plain(self, Q: Unbiased) -> DIANA:
        return DIANA(Q, gamma=self.gamma, alpha=self.alpha, down=self.down)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        asked = isinstance(self.gamma, str)
        if asked:
            require_convex(self, c)
        spread, omega = self.spread(c, d, n)
        if asked:
            require_rate(self, "alpha", 1 / (1 + omega), "1/(1 + ω_max)")
        return {"gamma": 1 / (c.L + 6 * spread), "alpha": 1 / (1 + omega)}
