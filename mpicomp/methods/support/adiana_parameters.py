"""The parameter sets of ADIANA for strongly convex f: the probability p, the step size η and the weights."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from mpicomp.problems.constants import Constants


class Weights(NamedTuple):
    """The weights with which ADIANA mixes its sequences x, y, z and w in a round."""

    theta1: float
    theta2: float
    gamma: float
    beta: float


@dataclass(frozen=True)
class Original:
    """Li, Kovalev, Qian, Richtárik (ICML 2020): θ2 = 1/2, θ1 = min{1/4, √(ημ/p)}, γ = η/(2(θ1 + ημ)),
    β = 1 - γμ.

    joint  n A, with A of the AB-inequality.  It is ω for independent compressors; for others it replaces ω
    """

    omega: float
    joint: float
    n: int

    def p(self) -> float:
        """min{1, max{1, √(n/(32ω)) - 1}/(2(1 + ω))}, ``joint`` for the first ω; 1/(1 + ω) if joint = 0."""
        if self.joint == 0:
            return 1 / (1 + self.omega)
        return min(1.0, max(1.0, sqrt(self.n / (32 * self.joint)) - 1) / (2 * (1 + self.omega)))

    def eta(self, c: Constants, p: float) -> float:
        """min{1/(2 L_max), n/(64 ω (2p(ω + 1) + 1)² L_max)}, with ``joint`` for the first ω."""
        spread = 64 * self.joint * (2 * p * (self.omega + 1) + 1) ** 2
        return min(1 / 2, self.n / spread if spread else 1 / 2) / c.L_max

    def weights(self, eta: float, mu: float, p: float, k: int) -> Weights:
        step = eta * mu
        theta1 = min(1 / 4, sqrt(step / p))
        gamma = eta / (2 * (theta1 + step))
        return Weights(theta1, 1 / 2, gamma, 1 - gamma * mu)


@dataclass(frozen=True)
class Refined:
    """He, Huang, Yuan, arXiv 2305.16297: θ2 = 1/(3√n + 3n/ω), θ1 = √(μ/L_max)/3,
    γ = η/(2θ1 + ημ), β = 2θ1 γ/η, and their limits for ω = 0.

    The paper's L bounds the smoothness of every f_i.  With that of f in its place E |x|² may grow.

    The theorem is for independent compressors, and n enters only through the variance ω/n of their mean.  For
    other compressors the variance is A, so ω/A replaces n.  It is the number of independent compressors whose
    mean has the variance A; with one mask for all workers it is 1.

    joint  n A, with A of the AB-inequality
    """

    omega: float
    joint: float
    n: int

    def p(self) -> float:
        """The probability of a new w: 1/(1 + ω)."""
        return 1 / (1 + self.omega)

    def eta(self, c: Constants, p: float) -> float:
        """The step size η = n θ2/(120 ω L_max), with ω/A in the place of n."""
        return 1 / (c.L_max * self._inverse())

    def weights(self, eta: float, mu: float, p: float, k: int) -> Weights:
        step = eta * mu
        # θ1 = √(μ/L_max)/3, with L_max expressed by eta: a tuned eta then changes θ1 as well.
        theta1 = sqrt(step * self._inverse()) / 3
        gamma = eta / (2 * theta1 + step)
        return Weights(theta1, self._theta2(), gamma, 2 * theta1 / (2 * theta1 + step))

    def _theta2(self) -> float:
        return 1 / (3 * sqrt(self._workers()) + 3 * self._workers() / self.omega) if self.omega else 0.0

    def _inverse(self) -> float:
        """1/(η L_max) = 120 ω/(n θ2), whose limit for ω = 0 is 360."""
        return 120 * self.omega / (self._workers() * self._theta2()) if self.omega else 360.0

    def _workers(self) -> float:
        """ω/A."""
        return self.n * self.omega / self.joint
