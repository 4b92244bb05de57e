"""M3's step by hand, and the bound of its proof."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Identity, Natural, PermK, RandK
from mpicomp.methods import GD, M3, MARINA, MARINAP
from tests.support.trajectories import (
    BY_HAND,
    HAND,
    L_TILDE,
    Entropy,
    grad_norm_sq,
    objective_value,
    resolved,
    squares,
    start,
    trajectory,
)


def heights(beta: float, p: float) -> tuple[float, float]:
    """c and b, from what one m_i of the proof does to u_i, e_i and e_i⁺ - e_i in all rounds to come."""
    u, e, T = (1 - p) ** np.arange(4000), [], 4000
    for k in range(T):
        e.append(beta * u[k] + (1 - beta) * (e[-1] if e else 0))
    energy = [np.sum(np.square(s)) for s in (u, e, np.diff(e, prepend=0))]
    return sqrt(energy[1] / energy[0]), sqrt(energy[2] * (1 - p) * (2 - p))  # the latter per √ω'


@pytest.mark.parametrize(("Q", "omega", "A"), BY_HAND, ids=lambda v: repr(v) if hasattr(v, "omega") else "")
@pytest.mark.parametrize("beta", [1.0, 0.5, 0.05])
def test_steps(Q, omega, A, beta):
    """By hand, with K = 4 RandK down: L = 3, L_+ = 3.5, L_± = 1.25, p = 0.2 and p' = 0.1; c and b by sums."""
    apart, moves = heights(beta, 0.1)
    moves *= sqrt(2)  # ω' = 2
    B = 1 if isinstance(Q, PermK) else 0
    S, N = 2 * sqrt((A - B) * 3.5**2 + B * 1.25**2), 2 * sqrt(A) * L_TILDE
    method = M3(Q, RandK(4), beta=beta, p=0.2, p_down=0.1)
    for quadratic in (False, True):
        M, E = L_TILDE * sqrt(2), min(S + 2 * apart * 3 * sqrt(2) * N, (1 + moves) * N)
        if quadratic:
            M, E = min(M, 1.25 * sqrt(2) + 3 * sqrt(1 / 2)), S + moves * N
        wanted = 1 / (3 / beta + apart * 3 * M + E)
        assert resolved(method, 12, 4, replace(HAND, quadratic=quadratic)).gamma == pytest.approx(wanted)


@pytest.mark.parametrize("quadratic", [False, True])
@pytest.mark.parametrize("Q", [case[0] for case in BY_HAND], ids=repr)
def test_its_steps_are_those_of_marinap_and_marina(Q, quadratic):
    """Where L_+ is at most L̃, as it is when both are the least constants."""
    c = replace(HAND, L_plus=3.25, quadratic=quadratic)
    assert resolved(M3(Identity(), Q), 12, 4, c).gamma == resolved(MARINAP(Q), 12, 4, c).gamma
    assert resolved(M3(Q, Identity()), 12, 4, c).gamma == resolved(MARINA(Q), 12, 4, c).gamma


def test_defaults():
    """p and p' are the shares of a whole vector that messages are; beta balances the two parts of 1/γ."""
    found = resolved(M3(RandK(3), PermK(values="f8")), 12, 4)
    assert (found.p, found.p_down) == (1 / 4, 1 / 2)
    assert found.beta == pytest.approx((3 * 3 / 4 * 1 / 2 * 3) ** (-1 / 3))
    assert resolved(M3(RandK(3), PermK(), p=0.9, p_down=0.8), 12, 4).beta == 1  # 3/4/9 * 0.2 * 3 < 1
    large = resolved(M3(RandK(0.001), PermK()), 1000, 1000)
    assert large.beta == pytest.approx(1000 ** (-2 / 3), rel=0.002)
    for lossless in (M3(mpicomp.Lossless(), PermK()), M3(PermK(), mpicomp.Lossless())):
        with pytest.raises(ConfigError, match="depends on the vector"):
            resolved(lossless, 12, 4)


@cache
def room(problem, n: int) -> float:
    """f(x⁰) - f*, where gradient descent comes near f*."""
    least = trajectory(start(GD(gamma=1 / problem.constants(n).L), problem, n), 3000)[-1]
    return objective_value(problem, n, problem.x0()) - objective_value(problem, n, least)


@pytest.mark.parametrize(
    ("Q", "Q_down", "beta"),
    [
        (RandK(2), PermK(), None),
        (RandK(2), PermK(), 1.0),
        (PermK(), RandK(4), 0.3),
        (Natural(), RandK(2, mask="shared"), None),
    ],
    ids=repr,
)
@pytest.mark.parametrize("problem", [squares(4, 8, seed=3), Entropy(d=8)], ids=["quadratic", "logistic"])
def test_the_bound_of_its_proof(problem, Q, Q_down, beta):
    """(1/T) Σ E|∇f(x^k)|² ≤ 2 (f(x⁰) - f*)/(γT)."""
    n, T, seeds = 4, 60, 6
    method, totals = M3(Q, Q_down, beta=beta), []
    for seed in range(seeds):
        loop = start(method, problem, n, seed=seed)
        totals.append(sum(grad_norm_sq(problem, n, x) for x in trajectory(loop, T)[:-1]))
    assert 0.2 < np.mean(totals) * loop.method.gamma / (2 * room(problem, n)) <= 1


def test_theory_needs_the_constants_of_the_problem():
    with pytest.raises(ConfigError, match=r"^M3 takes its theory from the constant L_tilde"):
        resolved(M3(RandK(2), PermK()), 12, 4, replace(HAND, L_i=None))
