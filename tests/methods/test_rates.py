"""The schedules of scalars behind the accelerated methods: 2Direction's rates, ADIANA's parameters.

Their formulas by hand numbers are in test_methods_twodirection.py and test_methods_adiana.py; here, what must
hold whatever the numbers.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf, sqrt

import numpy as np
import pytest

from mpicomp.methods.adiana import PARAMETERS
from mpicomp.methods.support import twodirection_rates as rates
from mpicomp.methods.support.adiana_parameters import Original, Refined
from tests.reference.twodirection import rates as transcribed
from tests.support.trajectories import HAND

GRID = [
    (Lbar, mu, p, slowest)
    for Lbar in (0.5, 300.0)
    for mu in (0.0, 1e-3, 0.7)
    for p in (1.0, 0.3, 0.01)
    for slowest in (1.0, 0.02)
]
every_schedule = pytest.mark.parametrize(("Lbar", "mu", "p", "slowest"), GRID)


@every_schedule
def test_rates_are_those_of_the_paper(Lbar, mu, p, slowest):
    """docs/methods.md, TwoDirection, against the transcription, which takes the
    root from numpy, along the whole schedule."""
    Gamma = 1.0
    for _ in range(60):
        now = rates.rates(Gamma, Lbar, mu, p, slowest)
        wanted, gamma, theta = transcribed(Gamma, Lbar, mu, p, slowest, slowest, slowest)
        assert now.theta == pytest.approx(theta, rel=1e-9)
        assert now.A == pytest.approx((Lbar + Gamma * mu) / gamma, rel=1e-9)
        assert now.Gamma == pytest.approx(wanted, rel=1e-9)
        Gamma = now.Gamma


@every_schedule
def test_rates_balance_and_contract(Lbar, mu, p, slowest):
    """Lbar theta gamma <= Lbar + Gamma mu, i.e. Lbar theta <= A, with equality where theta is not capped; and
    p theta, by which a round contracts, never grows."""
    Gamma, last = 1.0, inf
    for _ in range(2000):
        now = rates.rates(Gamma, Lbar, mu, p, slowest)
        cap = min(1, slowest / p) / 4
        assert 0 < now.theta <= cap
        assert Lbar * now.theta <= now.A * (1 + 1e-9)
        assert now.theta == cap or Lbar * now.theta == pytest.approx(now.A, rel=1e-9)
        assert now.theta <= last * (1 + 1e-12)
        assert now.Gamma >= Gamma
        Gamma, last = now.Gamma, now.theta
    assert Gamma > 1


@pytest.mark.parametrize("mu", [1e-3, 1.0, 1e3])
def test_a_gamma_that_no_longer_grows_changes_nothing_that_matters(mu):
    """At the cap Gamma mu/Lbar = 1e9, theta and A are within 1e-8 of their limits for Gamma to infinity."""
    Lbar, p, Gamma = 2.0, 0.3, 1.0
    for _ in range(100_000):
        now = rates.rates(Gamma, Lbar, mu, p, 1.0)
        if now.Gamma == Gamma:
            break
        Gamma = now.Gamma
    assert Gamma * mu <= rates.CAP * Lbar < 1.5 * Gamma * mu
    # p Lbar theta^2 + p mu theta = mu, unless the cap 1/4 is less; A = mu (1 - p theta)/(p theta)
    root = (-p * mu + sqrt((p * mu) ** 2 + 4 * p * Lbar * mu)) / (2 * p * Lbar)
    theta = min(root, 1 / 4)
    assert now.theta == pytest.approx(theta, rel=1e-8)
    assert now.A == pytest.approx(mu * (1 - p * theta) / (p * theta), rel=1e-8)


def test_the_plan_is_a_mean_and_a_minimiser():
    """y lies between w and z, and q minimises <k, x> + A/2 |x - w|^2 + mu/2 |x - y|^2."""
    w, z, k = np.random.default_rng(1).normal(size=(3, 5))
    now = rates.Rates(0.2, 3.0, 2.0)
    plan = rates.plan(w, z, k, 0.5, now)
    assert np.allclose(plan.y, z + 0.2 * (w - z))
    assert np.allclose(k + 3.0 * (plan.q - w) + 0.5 * (plan.q - plan.y), 0)
    assert (plan.theta, plan.A, plan.Gamma) == now


@pytest.mark.parametrize(
    ("omega", "up", "down", "dense"), [(3, 12, 13, 48), (99, 40, 50, 4000), (0, 48, 48, 48)]
)
def test_the_practical_p_falls_as_the_downlink_weighs_more(omega, up, down, dense):
    """From 1/(1 + omega) at r = 0 to at most (down bytes)/(dense bytes) at r = 1."""
    chosen = [rates.practical(omega, r, up, down, dense) for r in np.linspace(0, 1, 21)]
    assert chosen[0] == 1 / (1 + omega)
    assert all(0 < p <= before <= 1 for before, p in pairwise(chosen))
    assert chosen[-1] == pytest.approx(min(1 / (1 + omega), down / dense))


def test_the_theorem_is_monotone():
    """More smoothness or variance, or fewer workers, never makes for a bolder step."""
    arguments = dict(n=4, alpha=0.25, joint=3.0, p=0.25, tau=0.5, beta=0.25)
    base = rates.theory(HAND, **arguments)
    for worse in ({"n": 1}, {"alpha": 0.05}, {"joint": 11.0}, {"beta": 0.1}):
        assert rates.theory(HAND, **arguments | worse) >= base
    assert rates.theory(replace(HAND, L=6.0), **arguments) > base
    assert rates.theory(replace(HAND, L=6.0, L_i=(10.0,)), **arguments) == pytest.approx(2 * base)


# --- ADIANA ---


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("omega", [0.0, 1 / 8, 3.0, 1000.0])
@pytest.mark.parametrize("n", [1, 4, 100])
@pytest.mark.parametrize("mu", [0.1, 1e-6])
def test_adiana_mixes_with_weights(name, omega, n, mu):
    """x is a convex combination of z, w and y, and z one of z and x; p is a probability."""
    found = PARAMETERS[name](omega, omega, n)
    p = found.p()
    eta = found.eta(HAND, p)
    assert 0 < p <= 1 and 0 < eta <= 1 / (2 * HAND.L)
    for k in (0, 7, 10**6):
        theta1, theta2, gamma, beta = found.weights(eta, mu, p, k)
        assert min(theta1, theta2) >= 0 and theta1 > 0 and theta1 + theta2 < 1
        assert 0 < beta < 1 if name != "convex" else beta == 1
        assert gamma >= eta


def test_adiana_refined_tends_to_its_limit():
    """omega to 0: no jump at 0."""
    near, limit = Refined(1e-9, 1e-9, 10), Refined(0.0, 0.0, 10)
    assert near.eta(HAND, 1.0) == pytest.approx(limit.eta(HAND, 1.0), rel=1e-6)
    assert near.weights(1e-3, 0.1, 1.0, 0) == pytest.approx(
        limit.weights(1e-3, 0.1, 1.0, 0), rel=1e-6, abs=1e-8
    )


def test_adiana_refined_carries_L_along_with_eta():
    """theta1 = sqrt(mu/L_max)/3 at the theory's eta; 4 times the step is as L_max/4: twice theta1."""
    found = Refined(3.0, 3.0, 10)
    eta = found.eta(HAND, 0.25)
    theta1 = found.weights(eta, 0.1, 0.25, 0).theta1
    assert theta1 == pytest.approx(sqrt(0.1 / 5.0) / 3)
    assert found.weights(4 * eta, 0.1, 0.25, 0).theta1 == pytest.approx(2 * theta1)


def test_adiana_original_knows_dependent_compressors():
    """n A in place of omega: with a shared mask, where A = omega, n workers are as one."""
    shared, alone = Original(3.0, 3.0 * 20, 20), Original(3.0, 3.0, 1)
    assert (shared.p(), shared.eta(HAND, 0.2)) == (alone.p(), alone.eta(HAND, 0.2))
    assert shared.eta(HAND, 0.2) < Original(3.0, 3.0, 20).eta(HAND, 0.2)


def test_adiana_refined_knows_dependent_compressors():
    """As above: with a shared mask n workers are as one; 1 + omega/sqrt n becomes 1 + omega in the step."""
    shared, alone = Refined(3.0, 3.0 * 25, 25), Refined(3.0, 3.0, 1)
    assert shared.eta(HAND, 0.2) == pytest.approx(alone.eta(HAND, 0.2))
    assert shared.weights(1e-3, 0.1, 0.2, 0) == pytest.approx(alone.weights(1e-3, 0.1, 0.2, 0))
    independent = Refined(3.0, 3.0, 25)
    assert independent.eta(HAND, 0.2) / shared.eta(HAND, 0.2) == pytest.approx((1 + 3) / (1 + 3 / 5))
