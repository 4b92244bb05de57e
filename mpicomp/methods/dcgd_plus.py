"""DCGD+: DCGD whose workers compress in coordinates that are whitened by smoothness matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Lossless, Unbiased
from mpicomp.methods.dcgd import DCGD
from mpicomp.methods.parameters import StepSize
from mpicomp.methods.support.convexity import require_convex
from mpicomp.methods.support.whitening import WhitenedEstimate
from mpicomp.problems.constants import Constants


@dataclass(frozen=True)
class DCGDPlus(WhitenedEstimate):
    """L_i is the smoothness matrix of f_i, which worker i computes from its own shard::

        round 0    worker i sends L_i^{1/2}
        worker i   m_i = C_i(L_i^{†1/2} ∇f_i(x^k))
        all        x^{k+1} = x^k - γ mean L_i^{1/2} m_i

    C_i is Q.  If Q is ``Importance``, ``VaryingSteps`` or ``BlockSteps`` without weights, C_i is Q with the
    diagonal of L_i as its weights.  Any other unbiased Q is C_i itself.  For the three compressors named, for
    ``Bernoulli``, and for ``RandK`` and ``Dithering`` in their default forms, theory uses bounds on 𝓛_i that
    may be far below ω λ_max(L_i); for others it uses ω λ_max(L_i).
    theory, for convex f_i: gamma = 1/(L + 2𝓛_max/n).  x converges to a neighbourhood of x*, as for DCGD.

    The steps of a round are those of ``DCGD`` with the compressor ``support.whitening.Whitened``.
    Differences from the papers: the server broadcasts the mean and not x^{k+1}; every rank takes the step.
    """

    Q: Unbiased
    gamma: StepSize = "theory"
    down: Lossless = Lossless()

    recalled: ClassVar[str] = "the algorithm and the constants of theory"
    paper: ClassVar[str] = (
        "Safaryan, Hanzely, Richtárik (NeurIPS 2021); Wang, Safaryan, Richtárik (NeurIPS 2022)"
    )

    @dataclass
    class Worker:
        root: Array
        inverse: Array

    def plain(self, Q: Unbiased) -> DCGD:
        return DCGD(Q, gamma=self.gamma, down=self.down)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_convex(self, c)
        spread, _ = self.spread(c, d, n)
        return {"gamma": 1 / (c.L + 2 * spread)}
