"""The scalars of a round of 2Direction, and the step that every rank can compute before the broadcast."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

from mpicomp.base.arrays import Array
from mpicomp.problems.constants import Constants

CAP = 1e9  # Γμ/L̄ above which Γ stays as it is: the method depends on Γ only through 1 + L̄/(Γμ)


class Rates(NamedTuple):
    """The scalars of a round of 2Direction, computed by ``rates``."""

    theta: float
    A: float  # (L̄ + Γμ)/γ
    Gamma: float  # the next one, Γ + γ


class Plan(NamedTuple):
    """The scalars and vectors of a round that every rank computes from its replica, with no message."""

    theta: float
    y: Array
    A: float
    q: Array
    Gamma: float


def rates(Gamma: float, Lbar: float, mu: float, p: float, slowest: float) -> Rates:
    """Compute θ, then A = (L̄ + Γμ)/γ and the next Γ, which is Γ + γ; γ = p θ Γ/(1 - p θ).

    θ is the smaller of min{1, slowest/p}/4 and the positive root of p L̄ Γ θ² + p (L̄ + Γμ) θ = L̄ + Γμ.  At
    the root, L̄ θ γ = L̄ + Γμ.  Γ stays as it is once (Γ + γ) μ exceeds ``CAP`` L̄.

    slowest  min{α, τ, β}, α of the server's compressor
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
    """The default probability of a dense broadcast: p = min{1/(1 + ω), 1/ρ}.

    ρ = r dense/((1 - r) up + r down), where ``up``, ``down`` and ``dense`` are the bytes of a message of the
    workers, of the server, and of a dense one.  r is the weight of the downlink in the cost.
    """
    p = 1 / (1 + omega)
    return min(p, ((1 - r) * up + r * down) / (r * dense)) if r > 0 else p


def theory(c: Constants, n: int, alpha: float, joint: float, p: float, tau: float, beta: float) -> float:
    """The theorem's L̄: 660508 max{L/α, L p/(α τ), √(L L_max) p √(ω τ)/(α β √n),
    √(L L_max) √p √(ω τ)/(α √(β n)), L_max ω p²/(β² n), L_max ω/n}.

    In the theorem ω/n bounds the variance of the workers' mean.  Here A of the AB-inequality bounds it, so
    ``joint`` = n A replaces ω.  The ω of a single worker enters only through β.
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
