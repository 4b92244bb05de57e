"""The scalars of a round of 2Direction, which all ranks compute alike, and the step that they predict."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

from mpicomp.compressors.base import Array
from mpicomp.problems.base import Constants

CAP = 1e9  # Γμ/L̄ above which Γ stays as it is: the method depends on Γ only through 1 + L̄/(Γμ)


class Rates(NamedTuple):
    """The scalars of a round."""

    theta: float
    A: float  # (L̄ + Γμ)/γ
    Gamma: float  # the next one, Γ + γ


class Plan(NamedTuple):
    """The scalars and vectors of a round that follow from the replica alone."""

    theta: float
    y: Array
    A: float
    q: Array
    Gamma: float


def rates(Gamma: float, Lbar: float, mu: float, p: float, slowest: float) -> Rates:
    """θ is the smaller of min{1, slowest/p}/4 and the positive root of p L̄ Γ θ² + p (L̄ + Γμ) θ = L̄ + Γμ.

    γ = p θ Γ/(1 - p θ); at the root, L̄ θ γ = L̄ + Γμ.  ``slowest`` is min{α, τ, β}.
    """
    curvature = Lbar + Gamma * mu
    a, b = p * Lbar * Gamma, p * curvature
    root = 2 * curvature / (b + sqrt(b * b + 4 * a * curvature))  # the stable form
    theta = min(root, min(1, slowest / p) / 4)
    gamma = p * theta * Gamma / (1 - p * theta)
    grown = Gamma + gamma
    return Rates(theta, curvature / gamma, Gamma if grown * mu > CAP * Lbar else grown)


def plan(w: Array, z: Array, k: Array, mu: float, now: Rates) -> Plan:
    """y = θ w + (1 - θ) z, and q = (A w + μ y - k)/(A + μ), the step from w with the gradient k."""
    theta, A, Gamma = now
    y = theta * w + (1 - theta) * z
    return Plan(theta, y, A, (A * w + mu * y - k) / (A + mu), Gamma)


def practical(omega: float, r: float, up: float, down: float, dense: float) -> float:
    """p = min{1/(1 + ω), 1/ρ} with ρ = r dense/((1 - r) up + r down), in bytes of a message."""
    p = 1 / (1 + omega)
    return min(p, ((1 - r) * up + r * down) / (r * dense)) if r > 0 else p


def theory(c: Constants, n: int, alpha: float, joint: float, p: float, tau: float, beta: float) -> float:
    """The theorem's L̄: 660508 max{L/α, L p/(α τ), √(L L_max) p √(ω τ)/(α β √n),
    √(L L_max) √p √(ω τ)/(α √(β n)), L_max ω p²/(β² n), L_max ω/n}.

    There ω/n is the variance of the workers' mean.  Here that variance is A of the AB-inequality, so ω is
    replaced by ``joint`` = n A.  The ω of a single worker enters only through β.
    """
    geometric = sqrt(c.L * c.L_max)
    terms = (
        c.L / alpha,
        c.L * p / (alpha * tau),
        geometric * p * sqrt(joint * tau) / (alpha * beta * sqrt(n)),
        geometric * sqrt(p) * sqrt(joint * tau) / (alpha * sqrt(beta * n)),
        c.L_max * joint * p**2 / (beta**2 * n),
        c.L_max * joint / n,
    )
    return 660508 * max(terms)
