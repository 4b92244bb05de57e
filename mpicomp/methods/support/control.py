"""The rule by which a step size follows the slope of f along each step."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, isfinite, isnan

LENGTH = 1e-2  # of the first step, at most, relative to max(1, |x|)
GOAL = 0.4  # the slope at which γ stays, relative to the usual one
MEMORY = 0.99  # how much of the usual slope is left after a round with a smaller one
LEAST = 1e-4  # the least usual slope
FAST, SLOW, DOWN = 0.7, 0.035, 0.7  # the rates of log γ: far below the ceiling, near it, and down
BEYOND = 1.75  # the multiple of the ceiling up to which γ grows faster the larger it is
NEAR = 0.35  # the fraction of the ceiling from which γ grows slowly
LARGEST = 1e100  # γ


@dataclass
class StepControl:
    """A step size γ that grows while f still falls at the end of each step, and shrinks where it does not.

    gamma    γ; 0 before the first round
    ceiling  the γ at which the last fall began; 0 before the first fall
    usual    the largest slope of late, between LEAST and 1
    falls    1 while γ falls, else 0

    The slope of a step from x to x - γ g is a = <∇f(x - γ g), g>/|g|².  For g = ∇f(x) and a quadratic f with
    curvature κ along g it is 1 - γ κ: 1 for a tiny step, 0 for the best step along g, negative beyond.  If g
    is noisy, with a variance of ω |∇f|², it is 1/(1 + ω) for a tiny step; so a slope is compared with the
    usual one.  Noise that comes from long steps, as MARINA's and that of error feedback, makes it smaller::

        usual  =  min(1, max(a, MEMORY usual, LEAST));   z = a/usual - GOAL, clipped to [-1, 1]
        z ≥ 0     γ *= exp(FAST z) below NEAR * ceiling, and up to there; then exp(SLOW z) up to the ceiling,
                  and exp(SLOW z min(BEYOND, γ/ceiling)²) beyond it
        z < 0     γ *= exp(DOWN z), and the ceiling is the γ where the fall began

    So γ grows by half in a round from a tiny step, or by up to two where f is concave along g.  It returns as
    fast to NEAR of the γ at which it began to fall, and tries larger ones slowly, up to three times as fast
    once it has passed that γ without a fall.
    -<∇f(x - γ g), g> is the derivative of f(x - γ g) by γ, on which hypergradient descent is built (Almeida
    et al., 1998; Baydin et al., 2018).  This rule is the project's own: no theorem says that it converges,
    and docs/steps.md shows where it does not.
    """

    gamma: float = 0.0
    ceiling: float = 0.0
    usual: float = LEAST
    falls: int = 0

    def begin(self, scale: float) -> None:
        """Set the first γ.  ``scale`` is the mean of the |∇f_i|/max(1, |x|)."""
        self.gamma = min(LENGTH / scale, LARGEST) if 0 < scale < inf else LENGTH

    def update(self, slope: float) -> None:
        """Set the next γ by the slope of the last step.  An infinite one counts as a rise, NaN as no step."""
        if isnan(slope):
            return
        z = -1.0
        if isfinite(slope):
            self.usual = min(1.0, max(slope, MEMORY * self.usual, LEAST))
            z = max(-1.0, min(1.0, slope / self.usual - GOAL))
        if z < 0:
            if not self.falls:
                self.ceiling = self.gamma
            self.gamma *= exp(DOWN * z)
        elif self.ceiling == 0:
            self.gamma = min(self.gamma * exp(FAST * z), LARGEST)
        elif self.gamma < (low := NEAR * self.ceiling):
            self.gamma = min(self.gamma * exp(FAST * z), low)
        else:
            beyond = min(BEYOND, max(1.0, self.gamma / self.ceiling))
            self.gamma = min(self.gamma * exp(SLOW * beyond**2 * z), LARGEST)
        self.falls = int(z < 0)
