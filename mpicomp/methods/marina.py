"""MARINA: workers compress the changes of their gradients, and send whole gradients in random rounds."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Identity, Lossless, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import CurvatureOrZero, ProbabilityOrDefault, StepSize
from mpicomp.methods.support.coins import CoinMethod, share
from mpicomp.methods.support.convexity import curvature
from mpicomp.methods.support.estimating import Estimate
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class MARINA(CoinMethod):
    """MARINA, Algorithm 1 of Gorbunov, Burlachenko, Li, Richtárik (2021).

    L_+ and L_± are L_plus and L_pm of ``Constants``; ``Unbiased.ab`` defines A and B.  The coin c^k ~ Bern(p)
    is the same on all ranks; c^0 = 1 and g^0 = 0, so x^1 = x^0::

        4    x^{k+1} = x^k - γ g^k
        5-6  worker i sends  ∇f_i(x^{k+1})                        if c^k = 1
                             Q_i(∇f_i(x^{k+1}) - ∇f_i(x^k))       otherwise
        7    g^{k+1} = the mean of the messages if c^k = 1, else g^k + their mean

    p defaults to (mean bytes of Q) / (bytes of ``sync``), ζ/d of the paper for sparsifiers: dense messages
    then cost, in the mean over rounds, the bytes of one compressed message.
    theory: gamma = 1/(L + √((1-p)/p ((A - B) L_+² + B L_±²))), Szlendak, Tyurin, Richtárik (2022),
    Theorem 4, with A and B of the AB-inequality; for independent compressors it is Theorem 2.1 of Gorbunov et
    al. with L_+ for L.  For GLMs the problem's L_± is only a bound, close to L_+, so PermK gains almost
    nothing by theory: tune gamma there.
    mu          a constant of the Polyak-Łojasiewicz condition |∇f|² ≥ 2μ (f - f*), as a number or "theory",
                that of the problem's strong convexity; 0 for none.  With it theory is
                gamma = min{1/(L + √(2 (1-p)/p ((A - B) L_+² + B L_±²))), p/(2μ)}, and
                E f(x^k) - f* ≤ (1 - γμ)^k (f(x^0) - f*).

    Differences from the paper: the mean is broadcast and every rank forms g and takes the step.

    p  the probability of a dense round
    """

    Q: Unbiased
    gamma: StepSize = "theory"
    p: ProbabilityOrDefault = None
    sync: Identity = Identity()
    down: Lossless = Lossless()
    mu: CurvatureOrZero = 0.0

    recalled: ClassVar[str] = "gamma under the Polyak-Łojasiewicz condition"
    paper: ClassVar[str] = "Gorbunov, Burlachenko, Li, Richtárik, MARINA (ICML 2021), Algorithm 1"
    may_adapt: ClassVar[bool] = True
    needs_function: ClassVar[bool] = True  # one f_i in all rounds

    @dataclass
    class Worker:
        gradient: Array  # ∇f_i at the previous iterate: one gradient a round

    def worker_step(self, w: Worker, r: Estimate, f: Objective, key: Key) -> Message:
        return self.message_of(f.grad(r.x), w, key)  # 5-6

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"p": share(self.Q, self.sync, d, n)}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        spread = self.spread(c, d, n)
        if self.mu == 0:
            return {"gamma": 1 / (c.L + sqrt(spread))}
        mu = curvature(self, self.mu, c, "leave mu at 0")
        return {"gamma": min(1 / (c.L + sqrt(2 * spread)), self.p / (2 * mu)), "mu": c.mu or 0.0}
