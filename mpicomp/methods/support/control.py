"""The rule by which a step size follows the slope of f along each step."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, isfinite, isnan

LENGTH = 1e-2  # of the first step, at most, relative to max(1, |x|)
GOAL = 0.4  # the slope at which γ stays, relative to the usual one
MEMORY = 0.99  # how much of the usual slope is left after a round with a smaller one
LEAST = 1e-4  # the least usual slope
FAST, DOWN = 0.7, 0.7  # the rates of log γ, up at first and far below the ceiling, and down
LOW, MORE = 0.035, 1.05  # the least rate up after a fall, and the factor by which it grows in a round
STEEP = 0.7  # a fall with a z of -STEEP or less sets a ceiling
SLOW = 0.01  # the rate up near the ceiling
BEYOND = 1.75  # the multiple of the ceiling up to which γ grows faster the larger it is
NEAR = 0.5  # the fraction of the ceiling from which γ grows slowly
SUDDEN = 8.0  # a fall of the slope by more than so many times its usual change is sudden
QUIET = 2.0**-12  # the least usual change, a unit in which workers send slopes
CALM = 0.9  # how much of the usual change is left after a round without one
BACK = 0.7  # the factor of γ at a sudden fall
LARGEST = 1e100  # γ


@dataclass
class StepControl:
    """A step size γ that grows while f still falls at the end of each step, and shrinks where it does not.

    gamma    γ; 0 before the first round
    rate     the rate at which log γ grows while there is no ceiling
    ceiling  the γ at which the last steep fall began; 0 before the first one
    top      the γ at which the present fall began; 0 while γ does not fall
    usual    the largest slope of late, between LEAST and 1
    last     the slope of the round before, clipped to [-1, 1]; 1 before the first one
    change   how much that has changed in a round, a mean over some ten rounds

    The slope of a step from x to x - γ g is a = <∇f(x - γ g), g>/|g|².  For g = ∇f(x) and a quadratic f with
    curvature κ along g it is 1 - γ κ: 1 for a tiny step, 0 for the best step along g, negative beyond.  If g
    is noisy, with a variance of ω |∇f|², it is 1/(1 + ω) for a tiny step; so a slope is compared with the
    usual one.  Noise that comes from long steps, as MARINA's and that of error feedback, makes it smaller::

        usual  =  min(1, max(a, MEMORY usual, LEAST));   z = a/usual - GOAL, clipped to [-1, 1]
        z < 0     γ *= exp(DOWN z), and the rate falls by the root of that, to LOW at least.  If z ≤ -STEEP
                  before γ is below NEAR of where the fall began, the ceiling is the γ where it began
        z ≥ 0     without a ceiling, γ *= exp(rate z), and the rate grows by MORE, to FAST at most;
                  else γ *= exp(FAST z) below NEAR * ceiling, and up to there; then exp(SLOW z) up to the
                  ceiling, and exp(SLOW z min(BEYOND, γ/ceiling)²) beyond it.  But if the slope has fallen,
                  from NEAR * ceiling on, by more than SUDDEN max(change, QUIET), the ceiling is γ, and
                  γ *= BACK

    So γ grows by half in a round from a tiny step, or by up to two where f is concave along g.  A gentle fall
    says that the step gains little: for noise, or for coordinates that error feedback delays.  γ grows again,
    faster in every round; after a long fall it begins slowly, as it would swing with momentum.  A steep fall
    says that f is about to rise, as it does beyond 2/L: γ returns at once to NEAR of where that began, and
    tries larger ones slowly, for such a fall costs many rounds, and |∇f| jumps.  Where slopes change little
    from round to round, a sudden fall announces a steep one: what oscillates along the steepest direction
    grows in each round, and lowers the slope only once it is nearly as long as the rest of g.
    -<∇f(x - γ g), g> is the derivative of f(x - γ g) by γ, on which hypergradient descent is built (Almeida
    et al., 1998; Baydin et al., 2018).  This rule is the project's own: no theorem says that it converges,
    and docs/steps.md shows where it does not.
    """

    gamma: float = 0.0
    rate: float = FAST
    ceiling: float = 0.0
    top: float = 0.0
    usual: float = LEAST
    last: float = 1.0
    change: float = 1.0

    def begin(self, scale: float) -> None:
        """Set the first γ.  ``scale`` is the mean of the |∇f_i|/max(1, |x|)."""
        self.gamma = min(LENGTH / scale, LARGEST) if 0 < scale < inf else LENGTH

    def update(self, slope: float) -> None:
        """Set the next γ by the slope of the last step.  An infinite one counts as a rise, NaN as no step."""
        if isnan(slope):
            return
        z = clipped = -1.0
        if isfinite(slope):
            self.usual = min(1.0, max(slope, MEMORY * self.usual, LEAST))
            z = max(-1.0, min(1.0, slope / self.usual - GOAL))
            clipped = max(-1.0, min(1.0, slope))
        fall = self.last - clipped
        sudden = fall > SUDDEN * max(self.change, QUIET)
        self.last, self.change = clipped, CALM * self.change + (1 - CALM) * abs(fall)
        if z < 0:
            self.top = self.top or self.gamma
            if z <= -STEEP and self.gamma >= NEAR * self.top:
                self.ceiling = self.top
            self.rate = max(LOW, self.rate * exp(DOWN * z / 2))
            self.gamma *= exp(DOWN * z)
            return
        self.top = 0.0
        if self.ceiling == 0:
            self.gamma = min(self.gamma * exp(self.rate * z), LARGEST)
            self.rate = min(FAST, self.rate * MORE)
        elif self.gamma < (low := NEAR * self.ceiling):
            self.gamma = min(self.gamma * exp(FAST * z), low)
        elif sudden:
            self.ceiling = self.gamma
            self.gamma *= BACK
        else:
            beyond = min(BEYOND, max(1.0, self.gamma / self.ceiling))
            self.gamma = min(self.gamma * exp(SLOW * beyond**2 * z), LARGEST)
