"""The rule by which a step size follows noisy gradients: by the distance that x has to go."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, inf, isfinite

from mpicomp.codecs.messages import short
from mpicomp.methods.support.control import LARGEST, LENGTH

FACTOR = 1.5  # of what is proved of the distance, which is less than it, and much less at first


@dataclass
class DistanceControl:
    """A step size γ for gradients whose noise stays, from an estimate d of the distance |x^0 - x*|.

    gamma     γ; 0 before the first round
    distance  d; 0 before the first step
    progress  Σ γ_j <s^j, x^0 - x^j>, with s^j the mean of the workers' gradients at x^j
    norm      (Σ d_j² |g^j|²)^{1/2}, over the steps before the last one

    The first γ makes a step of about max(1, |x⁰|)/100, shorter if the ∇f_i differ in direction, longer if an
    unbiased compressor makes g longer; d_1 is its length.  Then, for k ≥ 1::

        d_k = max(d_{k-1}, FACTOR progress/|x^k - x^0|)
        γ_k = d_k²/(Σ_{j<k} d_j² |g^j|² + d_k² |g^{k-1}|²)^{1/2}

    If f is convex, 0 ≤ Σ γ_j <∇f(x^j), x^j - x*>, so Σ γ_j <∇f(x^j), x^0 - x^j> ≤ |Σ γ_j ∇f(x^j)| |x^0 - x*|.
    And Σ γ_j g^j = x^0 - x^k.  So progress/|x^k - x^0| is at most |x^0 - x*|, but for the errors of s and g.
    d never shrinks: where d_1 is longer than that, γ stays too long for a while.  The estimate is that of
    D-Adaptation (Defazio and Mishchenko, 2023), and the step that of Prodigy (Mishchenko and Defazio, 2024),
    in their forms for gradient descent, as recalled, but for FACTOR and two changes.  Their inner products
    are with g^j, along which x moves; here they are with the gradients themselves: with error feedback or
    momentum g lags behind, and lets d grow where x swings.  And |g^{k-1}| stands for |g^k|, which the server
    does not know when it sets γ_k, and for the bound on all |g^j| in Prodigy's root.  No theorem is known to
    hold for this rule.
    """

    gamma: float = 0.0
    distance: float = 0.0
    progress: float = 0.0
    norm: float = 0.0

    def begin(self, scale: float) -> None:
        """Set the first γ.  ``scale`` is the mean of the |∇f_i|/max(1, |x|)."""
        self.gamma = short(min(LENGTH / scale, LARGEST) if 0 < scale < inf else LENGTH)

    def update(self, slope: float, moved: float, length: float) -> None:
        """Set γ_k.  A slope that is not finite tells nothing: γ stays.

        slope   <s^k, x^0 - x^k>/(|x^k - x^0| |g^{k-1}|)
        moved   |x^k - x^0|, above 0
        length  |g^{k-1}|, above 0
        """
        if not isfinite(slope):
            return
        before = self.distance or moved
        self.distance = max(before, FACTOR * self.progress / moved)
        self.norm = hypot(self.norm, before * length)
        size = hypot(self.norm, self.distance * length)
        if size > 0:  # else it is below the least double
            self.gamma = short(min(self.distance * (self.distance / size), LARGEST))  # that of the step
        self.progress += self.gamma * slope * moved * length
