"""Steps of DCGD+, DIANA+ and ADIANA+ from smoothness matrices, and the theorems that they come from."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import (
    Bernoulli,
    BlockSteps,
    Dithering,
    Identity,
    Importance,
    Natural,
    PermK,
    RandK,
    VaryingSteps,
)
from mpicomp.methods import DCGD, DIANA, ADIANAPlus, DCGDPlus, DIANAPlus
from mpicomp.methods.support.whitening import variance
from tests.support.smoothness_matrices import fitted as fitted_to
from tests.support.smoothness_matrices import skewed
from tests.support.trajectories import HAND, PLACES, gradients, resolved, start, trajectory

# --- step sizes ---

W = (
    (1.0, 9.0, 4.0, 2.0),
    (1.0, 1.0, 1.0, 1.0),
    (4.0, 4.0, 0.0, 1.0),
    (2.0, 2.0, 2.0, 2.0),
)  # largest trace 16
TOPS = (10.0, 2.0, 5.0, 4.0)
SMOOTH = replace(HAND, L_i=TOPS, diagonals=lambda: np.array(W))  # L = 3, mu = 0.1


@pytest.mark.parametrize(
    ("diagonals", "said"),
    [
        (
            np.ones((3, 4)),
            r"gives array.*; allowed: an array of numbers of shape \(4, 4\), a diag",
        ),
        (np.ones((4, 5)), r"gives array.*; allowed: an array of numbers of shape \(4, 4\)"),
        (np.array(W) + 0j, r"gives array.*; allowed: an array of numbers of shape \(4, 4\)"),
        (np.ma.array(W, mask=np.eye(4)), "has a mask"),
        ([[1.0], [2.0, 3.0]], "is ragged"),
        (np.full((4, 4), np.nan), "gives entries that are negative or not finite"),
        (-np.array(W), "gives entries that are negative or not finite"),
    ],
)
def test_diagonals_that_cannot_be_those_of_the_problem_are_refused(diagonals, said):
    """A row too long gave another step size, and other shapes a traceback."""
    with pytest.raises(ConfigError, match=f"the function diagonals of the problem's Constants.* {said}"):
        resolved(DIANAPlus(Bernoulli(0.25)), 4, 4, replace(SMOOTH, diagonals=lambda: diagonals))
    rows = replace(SMOOTH, diagonals=lambda: [list(row) for row in W])
    assert resolved(DIANAPlus(Bernoulli(0.25)), 4, 4, rows) == resolved(
        DIANAPlus(Bernoulli(0.25)), 4, 4, SMOOTH
    )


def largest(Q) -> tuple[float, float]:
    """𝓛_max and ω_max as the definitions have them: over workers, of the compressors fitted to them."""
    coders = [fitted_to(Q, np.diag(w)) for w in W]
    bounds = [variance(Q, np.array(w), top, 4) for w, top in zip(W, TOPS, strict=True)]
    return max(bounds), max(c.omega(4, 4) for c in coders)


def test_the_largest_variance_by_hand():
    assert largest(VaryingSteps(8.0))[0] == pytest.approx(1 / 4)  # d tr/(4 beta^2), of the first worker
    # |h|^2/4 = tr sum_j (1/L_jj)/(4 beta^2): 16 (1 + 1/9 + 1/4 + 1/2) of the first worker; the others have
    # 4 · 4, 9 (1/4 + 1/4 + 1) and 8 · 2.  The other bound, |h|, is larger.
    assert largest(VaryingSteps(8.0))[1] == pytest.approx(16 * (1 + 1 / 9 + 1 / 4 + 1 / 2) / 256)
    assert largest(Bernoulli(0.25)) == (pytest.approx(27.0), pytest.approx(3.0))
    assert largest(RandK(1)) == (pytest.approx(30.0), pytest.approx(3.0))  # 3 min{10, 9 · 4/3}
    assert largest(Dithering(1)) == (pytest.approx(4.0), pytest.approx(1.0))  # tr/4
    assert largest(Natural()) == (pytest.approx(10 / 8), pytest.approx(1 / 8))
    assert largest(Importance(2, (1.0,) * 4)) == (pytest.approx(9.0), pytest.approx(1.0))  # coins of 1/2


STEPPED = [
    VaryingSteps(8.0),
    BlockSteps(6.0, 2),
    Importance(2),
    Bernoulli(0.25),
    RandK(1),
    Dithering(1),
    Natural(),
]


@pytest.mark.parametrize("Q", STEPPED, ids=repr)
def test_steps(Q):
    """docs/methods.md#whitening, with n = 4 workers."""
    spread, omega = largest(Q)
    assert resolved(DCGDPlus(Q), 4, 4, SMOOTH).gamma == pytest.approx(1 / (3 + 2 * spread / 4))
    diana = resolved(DIANAPlus(Q), 4, 4, SMOOTH)
    assert (diana.gamma, diana.alpha) == (
        pytest.approx(1 / (3 + 6 * spread / 4)),
        pytest.approx(1 / (1 + omega)),
    )
    slow = resolved(DIANAPlus(Q, gamma="theory*8", alpha="theory*0.5"), 4, 4, SMOOTH)
    assert (slow.gamma, slow.alpha) == (pytest.approx(8 * diana.gamma), pytest.approx(diana.alpha / 2))
    adiana = resolved(ADIANAPlus(Q), 4, 4, SMOOTH)
    p = min(1, max(1, sqrt(4 * 3 / (32 * spread)) - 1) / (2 * (1 + omega)))
    eta = min(1 / (2 * 3), 4 / (64 * spread * (2 * p * (omega + 1) + 1) ** 2))
    assert (adiana.p, adiana.eta) == (pytest.approx(p), pytest.approx(eta))
    assert (adiana.mu, adiana.alpha) == (0.1, pytest.approx(1 / (1 + omega)))
    chosen = resolved(ADIANAPlus(Q, p=0.25), 4, 4, SMOOTH)
    assert chosen.eta == pytest.approx(min(1 / 6, 4 / (64 * spread * (0.5 * (omega + 1) + 1) ** 2)))
    halved = resolved(ADIANAPlus(Q, p="theory*0.5"), 4, 4, SMOOTH)
    assert halved.p == pytest.approx(p / 2)
    assert halved.eta == pytest.approx(min(1 / 6, 4 / (64 * spread * (p * (omega + 1) + 1) ** 2)))


@pytest.mark.parametrize("Q", [RandK(1, mask="shared"), PermK()], ids=repr)
def test_steps_where_draws_are_not_independent(Q):
    """[D] Jensen: the error of the mean is at most the mean error, and 𝓛_max takes the place of 𝓛_max/n."""
    spread, _ = largest(Q)
    assert spread > 0
    assert resolved(DCGDPlus(Q), 4, 4, SMOOTH).gamma == pytest.approx(1 / (3 + 2 * spread))
    assert resolved(DIANAPlus(Q), 4, 4, SMOOTH).gamma == pytest.approx(1 / (3 + 6 * spread))


def test_steps_without_compression():
    assert resolved(DCGDPlus(Identity()), 4, 4, SMOOTH).gamma == pytest.approx(1 / 3)
    diana, adiana = (resolved(make(Identity()), 4, 4, SMOOTH) for make in (DIANAPlus, ADIANAPlus))
    assert (diana.gamma, diana.alpha) == (pytest.approx(1 / 3), 1)
    assert (adiana.eta, adiana.p, adiana.alpha) == (pytest.approx(1 / 6), 1, 1)


def test_smoothness_aware_steps_are_larger():
    """What the theory promises, by 𝓛_max ≤ ω L_max and L ≤ L_max; and the closed forms do better than equal
    steps and odds of the same budget."""
    problem, n = PLACES[0]
    c = problem.constants(n)
    for plain, plus in ((DCGD, DCGDPlus), (DIANA, DIANAPlus)):
        for Q in (RandK(2), Dithering(1), VaryingSteps(sqrt(12)), Importance(2), BlockSteps(4.0, 3)):
            assert resolved(plus(Q), 12, n, c).gamma > resolved(plain(Q), 12, n, c).gamma
        for equal, fitted in ((Bernoulli(1 / 6), Importance(2)), (BlockSteps(2.0, 1), VaryingSteps(2.0))):
            assert resolved(plus(fitted), 12, n, c).gamma > resolved(plus(equal), 12, n, c).gamma
        fine = [resolved(plus(Q), 12, n, c).gamma for Q in (BlockSteps(40.0, 1), VaryingSteps(40.0))]
        assert fine[0] == pytest.approx(fine[1], rel=1e-14)  # |h| <= 2 for both: there is nothing in it


@pytest.mark.parametrize("mu", [None, 0.0])
def test_the_theorems_need_convexity(mu):
    with pytest.raises(ConfigError, match="mu"):
        resolved(ADIANAPlus(RandK(3)), 4, 4, replace(SMOOTH, mu=mu))
    if mu is None:
        with pytest.raises(ConfigError, match="convex"):
            resolved(DIANAPlus(RandK(3)), 4, 4, replace(SMOOTH, mu=mu))


def test_adiana_plus_takes_a_mu_of_ones_own_where_the_problems_is_zero():
    found = resolved(ADIANAPlus(RandK(3), mu=0.01), 4, 4, replace(SMOOTH, mu=0.0))
    assert found.mu == 0.01 and found.eta == resolved(ADIANAPlus(RandK(3)), 4, 4, SMOOTH).eta
    given = resolved(ADIANAPlus(RandK(3), eta=0.3, mu=0.01), 4, 4, replace(SMOOTH, mu=None))
    assert (given.mu, given.eta) == (0.01, 0.3)


# --- theorems, with theory's steps ---

AWARE = [VaryingSteps(4.0), BlockSteps(6.0, 3), Importance(3), RandK(3), Bernoulli(0.25)]


@pytest.mark.parametrize("Q", AWARE, ids=repr)
def test_diana_plus_contracts_linearly(Q):
    """With V = |x - x*|^2 + M gamma^2 mean |h_i - ∇f_i(x*)|^2 in the norm of L_i^+, M = 4𝓛_max/(n alpha):
    E V_k <= max{1 - gamma mu, 1 - alpha/2}^k V_0.  [D, as for DIANA: E |g - ∇f|^2 is at most 𝓛_max/n times
    mean |∇f_i - h_i|^2 in that norm, in which 2 D_{f_i} bounds |∇f_i(x) - ∇f_i(x*)|^2.]  The mean over 4
    seeds, no slack."""
    problem, n = skewed(4, 8, seed=63), 4
    c, x_star, Ls = problem.constants(n), problem.problem.x_star, problem.matrices
    spread = max(variance(Q, np.diagonal(L), top, n) for L, top in zip(Ls, c.L_i, strict=True)) / n
    limits = [grad(x_star) for grad in gradients(problem, n)]
    values = []
    for seed in range(4):
        loop = start(DIANAPlus(Q), problem, n, seed)
        gamma, alpha = loop.method.gamma, loop.method.alpha
        assert gamma == pytest.approx(1 / (c.L + 6 * spread))
        loop.step(0)
        history = []
        for k in range(151):
            if k % 15 == 0:
                apart = [w.h - limits[i] for i, w in loop.workers.items()]
                far = np.mean([e @ np.linalg.solve(L, e) for e, L in zip(apart, Ls, strict=True)])
                history.append(np.sum((loop.x - x_star) ** 2) + 4 * spread / alpha * gamma**2 * far)
            loop.step(k + 1)
        values.append(history)
    rate = max(1 - gamma * c.mu, 1 - alpha / 2)
    mean = np.mean(values, axis=0)
    assert mean[-1] < mean[0] / 10
    assert all(v <= rate ** (15 * j) * mean[0] for j, v in enumerate(mean))


@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("Q", AWARE, ids=repr)
def test_dcgd_plus_contracts_to_a_neighbourhood(Q, common):
    """[D] E |x_k - x*|^2 <= (1 - gamma mu)^k |x_0 - x*|^2 + 2 gamma 𝓛_max/(n mu) mean |∇f_i(x*)|^2, in the
    norm of L_i^+; the second term is 0 where the ∇f_i(x*) are.  The mean over 4 seeds, no slack."""
    problem, n = skewed(4, 8, seed=64, **({"common_optimum": True} if common else {})), 4
    c, x_star, Ls = problem.constants(n), problem.problem.x_star, problem.matrices
    spread = max(variance(Q, np.diagonal(L), top, n) for L, top in zip(Ls, c.L_i, strict=True)) / n
    limits = [grad(x_star) for grad in gradients(problem, n)]
    noise = np.mean([e @ np.linalg.solve(L, e) for e, L in zip(limits, Ls, strict=True)])
    assert common == (noise < 1e-20)
    values = []
    for seed in range(4):
        loop = start(DCGDPlus(Q), problem, n, seed)
        values.append([np.sum((x - x_star) ** 2) for x in trajectory(loop, 121)[1::10]])
    gamma = loop.method.gamma
    mean = np.mean(values, axis=0)
    assert all(
        v <= (1 - gamma * c.mu) ** (10 * j) * mean[0] + 2 * gamma * spread / c.mu * noise
        for j, v in enumerate(mean)
    )


@pytest.mark.parametrize("Q", AWARE, ids=repr)
def test_adiana_plus_converges_linearly_by_theory(Q):
    """By a constant factor over each of equal spans of rounds, to the optimum."""
    problem, n = skewed(4, 8, seed=65), 4
    loop = start(ADIANAPlus(Q), problem, n, seed=1)
    errors = [np.sum((y - problem.problem.x_star) ** 2) for y in trajectory(loop, 3 * 200)[::200]]
    assert all(new < 0.5 * old for old, new in pairwise(errors)), errors
