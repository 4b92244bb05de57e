"""DASHA: MARINA's rate without rounds of dense messages after the first."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Lossless, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.parameters import RateOrDefault, StepSize
from mpicomp.methods.support.differences import DifferenceMethod
from mpicomp.methods.support.estimating import Estimate
from mpicomp.methods.support.starts import Start
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class DASHA(DifferenceMethod):
    """Algorithm 1 of the paper, with full gradients::

        worker i   m_i = C_i(∇f_i(x^{k+1}) - ∇f_i(x^k) - a (g_i - ∇f_i(x^k)));   g_i += m_i
        all        g += mean m_i;   x^{k+2} = x^{k+1} - γ g

    g = mean g_i in every round.  a defaults to 1/(2ω + 1).
    start  "gradient": g_i^0 = ∇f_i(x^0), sent whole, as in the theorem.
           "compressed": g_i^0 = C_i(∇f_i(x^0)).
           "zero": g_i^0 = 0, as in the authors' program.  The step from x^0 would then be 0; it is left out,
           and round 0 sends C_i(a ∇f_i(x^0)).
    The mean of g^k - ∇f(x^k) fades like (1 - a)^k.  At k = 0 its mean square is 0 for "gradient",
    A mean |∇f_i(x^0)|² for "compressed" and |∇f(x^0)|² for "zero".  A, of the AB-inequality, is ω/n for
    independent compressors.
    theory, for a = 1/(2ω + 1) and the start from the gradient: gamma = 1/(L + L̃ √(16 A (2ω + 1))).

    Differences from the paper: the mean is broadcast and every rank takes the step.

    a  the rate at which the error of g_i fades
    """

    Q: Unbiased
    gamma: StepSize = "theory"
    a: RateOrDefault = None
    down: Lossless = Lossless()
    start: Start = "gradient"

    recalled: ClassVar[str] = "the constant 16 of gamma"
    paper: ClassVar[str] = "Tyurin, Richtárik, DASHA (ICLR 2023), Algorithm 1"
    may_adapt: ClassVar[bool] = True

    def local(self, w: DifferenceMethod.Worker, r: Estimate, f: Objective, key: Key) -> Array:
        return f.grad(r.x)  # ∇f_i(x^{k+1})

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        return {"gamma": 1 / (c.L + c.L_tilde * sqrt(self.spread(16, d, n)))}
