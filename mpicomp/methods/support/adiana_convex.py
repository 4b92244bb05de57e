"""ADIANA for convex f that need not be strongly convex: its parameters, with their proof."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from mpicomp.methods.support.adiana_parameters import Weights
from mpicomp.problems.constants import Constants


@dataclass(frozen=True)
class Convex:
    """θ1 falls from round to round:  θ1 = c/(k + k_0),  θ2 = 1/2,  γ = η/(2 θ1),  β = 1,  with

        α = 1/(1 + ω),   c = max{4, 5/(2p)},   k_0 = max{16, 10/p, 10/α},
        η = min{1/(2L), 1/(4 A L_max (1 + 2q))},   q = (20/3) r (1 + 2r),   r = p/α,

    for a variance E |g - ∇f(x)|² <= A mean_i |∇f_i(x) - h_i|² of the estimate g; ``joint`` is n A, which is ω
    for independent compressors.  With F(v) = f(v) - f(x*) and λ_k = η/θ1², of round k,

        E F(y^K) <= Φ^0/λ_{K-1},  which falls as 1/K²,  where
        Φ^k = λ F(y) + λ (1 + θ1)/(2p) F(w) + |z - x*|² + 10 η A λ/(3α) H   with λ, θ1 of round k - 1,
        H = mean_i |∇f_i(w) - h_i|².

    Proof.  Let θ3 = 1 - θ1 - θ2, V = E |g - ∇f(x)|², D_w the mean over i of |∇f_i(x) - ∇f_i(w)|², and D_y the
    same with y for w.  Expectations are of one round; + marks the next one.

    1. z+ = z - γ g, so <∇f(x), z - x*> = (|z - x*|² - E |z+ - x*|²)/(2γ) + γ (|∇f(x)|² + V)/2.
    2. θ1 (x - z) = θ2 (w - x) + θ3 (y - x), and f(w) >= f(x) + <∇f(x), w - x> + D_w/(2 L_max), for f_i are
       convex and smooth; the same holds for y.  With this and F(x) <= <∇f(x), x - x*>, 1. times θ1 becomes
       F(x) - θ2 F(w) - θ3 F(y) <= (θ1²/η) (|z - x*|² - E |z+ - x*|²) + (η/4) (|∇f(x)|² + V)
       - (θ2 D_w + θ3 D_y)/(2 L_max).
    3. By smoothness and η <= 1/(2L),  E F(y+) <= F(x) - (3/4) η |∇f(x)|² + (η/4) V.
    4. V <= 2A (D_w + H).  The sum of 2. and 3., times λ_k, is
       λ_k E F(y+) + E |z+ - x*|² <= λ_k (θ2 F(w) + θ3 F(y)) + |z - x*|² + λ_k η A (D_w + H)
       - λ_k (θ2 D_w + θ3 D_y)/(2 L_max).
    5. w+ is y with probability p, and h_i moves towards ∇f_i(w).  By |u + v|² <= (1 + s) |u|² +
       (1 + 1/s) |v|² with s = α/(2p),  E H+ <= (1 - α/2) H + 2 α r (1 + 2r) (D_w + D_y).
    6. To 4. add a_k = λ_k (1 + θ1)/(2p) times F(w+), and b_k = 10 η A λ_k/(3α) times H+.  On the right there
       are then λ_k (1 - θ1/2) F(y), (1 - p θ1/(1 + θ1)) a_k F(w) with p θ1/(1 + θ1) >= (4/5) p θ1, and
       (1 - α/5) b_k H.  Since θ1/2, (4/5) p θ1 and α/5 are at least 2/(k + k_0), and λ_{k-1}/λ_k =
       (1 - 1/(k + k_0))² is at least 1 - 2/(k + k_0), all three are at most those of Φ^k.
    7. D_w has the factor λ_k (η A (1 + q) - 1/(4 L_max)), and D_y one of at most λ_k (η A q - 1/(8 L_max)):
       neither is above 0.  So E Φ^{k+1} <= Φ^k.
    """

    omega: float
    joint: float
    n: int

    def p(self) -> float:
        """The probability of a new w: min{1, max{1, r}/(1 + ω)}, and 1 if A = 0.

        r = (√(max{0, 1 + 1.2 (1/(4A) - 1/2)}) - 1)/4.  Where that is above 0, it solves 2 A (1 + 2q) = 1: the
        two bounds on η are then equal if L_max = L.
        """
        if self.joint == 0:
            return 1.0
        r = (sqrt(max(0.0, 1 + 1.2 * (self.n / (4 * self.joint) - 0.5))) - 1) / 4
        return min(1.0, max(1.0, r) / (1 + self.omega))

    def eta(self, c: Constants, p: float) -> float:
        """The step size η = min{1/(2L), 1/(4 A L_max (1 + 2q))}."""
        r = p * (1 + self.omega)
        crowded = 4 * self.joint / self.n * c.L_max * (1 + 40 / 3 * r * (1 + 2 * r))
        return min(1 / (2 * c.L), 1 / crowded) if crowded else 1 / (2 * c.L)

    def weights(self, eta: float, mu: float, p: float, k: int) -> Weights:
        top = max(4.0, 2.5 / p)
        theta1 = top / (k + max(16.0, 10 / p, 10 * (1 + self.omega)))
        return Weights(theta1, 1 / 2, eta / (2 * theta1), 1.0)
