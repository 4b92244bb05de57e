"""GD, AGD, DCGD, DIANA, MARINA, EF14 and EF21: where they converge, and at the rates of their theorems."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from mpicomp.compressors import (
    Identity,
    Natural,
    PermK,
    Quantized,
    RandK,
    Sign,
    Ternary,
    TopK,
)
from mpicomp.methods import AGD, DCGD, DIANA, EF14, EF21, GD, MARINA
from mpicomp.problems import Quadratics
from tests.reference.agd import agd
from tests.reference.dcgd import dcgd
from tests.support.trajectories import (
    PLACES,
    Squares,
    codec,
    grad_norm_sq,
    gradients,
    objective_value,
    squares,
    start,
    trajectory,
)

# --- what methods do ---


@pytest.mark.parametrize(("problem", "n"), PLACES[:2], ids=["d12-n4", "d13-n5"])
@pytest.mark.parametrize("factor", [0.3, 1.0])
def test_gd_decreases_f_by_the_descent_lemma(problem, n, factor):
    """docs/methods.md, GD: gamma <= 1/L gives f(x+) <= f(x) - gamma (1 - gamma L/2)
    |grad f(x)|^2 in every round."""
    loop = start(GD(gamma=f"theory*{factor}", values="f8"), problem, n)
    gamma, L = loop.method.gamma, problem.constants(n).L
    assert gamma == pytest.approx(factor / L)
    iterates = trajectory(loop, 100)
    for x, following in pairwise(iterates):
        bound = objective_value(problem, n, x) - gamma * (1 - gamma * L / 2) * grad_norm_sq(problem, n, x)
        assert objective_value(problem, n, following) <= bound + 1e-14


def test_dcgd_plateaus_unless_the_local_gradients_vanish():
    """docs/methods.md, DCGD, RandK, theory step: grad f_i(x*) != 0 leaves a
    neighbourhood, = 0 none; DIANA never."""
    hard, easy = squares(3, 6, seed=4), squares(3, 6, seed=4, common_optimum=True)

    def plateau(method, problem):
        iterates = trajectory(start(method, problem, 3), 1000)
        first = grad_norm_sq(problem, 3, iterates[0])
        return np.mean([grad_norm_sq(problem, 3, x) for x in iterates[-200:]]) / first

    assert plateau(DCGD(RandK(2)), hard) > 1e-4
    assert plateau(DCGD(RandK(2)), easy) < 1e-20
    assert plateau(DIANA(RandK(2)), hard) < 1e-20


def counterexample() -> Squares:
    """Beznosikov et al. (2020): <a_i, x>^2 + |x|^2/4, a = (-3,2,2), (2,-3,2), (2,2,-3), from x0 = (1,1,1)."""
    a = np.array([[-3.0, 2, 2], [2, -3, 2], [2, 2, -3]])
    A = 2 * a[:, :, None] * a[:, None, :] + np.eye(3) / 2
    return Squares(A, np.zeros((3, 3)), np.ones(3))


def test_ef21_converges_where_gradient_descent_with_top1_diverges():
    """docs/methods.md, EF21.  There grad f_i(x0) has its largest entry, -11/2, at i, so Top1 sends an ascent
    direction: x^k = (1 + 11 gamma/6)^k x^0.  EF21 with the same Top1 and its theory step goes to x* = 0."""
    problem = counterexample()
    loop = start(EF21(TopK(1)), problem, 3)
    gamma = loop.method.gamma
    diverging = dcgd(gradients(problem, 3), problem.x0(), gamma, codec(TopK(1, values="f8"), 0, 3), 200)
    for k, x in enumerate(diverging):
        assert np.allclose(x, (1 + 11 * gamma / 6) ** k, rtol=1e-10)
    assert np.abs(trajectory(loop, 3000)[-1]).max() < 1e-8


def test_ef14_plateaus_where_ef21_converges():
    """docs/methods.md, EF14 and EF21: the same heterogeneous problem, TopK and step size."""
    problem = squares(4, 8, seed=9)
    gamma = start(EF21(TopK(2)), problem, 4).method.gamma

    def final(method):
        iterates = trajectory(start(method, problem, 4), 1500)[-200:]
        return np.mean([grad_norm_sq(problem, 4, x) for x in iterates])

    assert final(EF14(TopK(2), gamma=gamma)) > 1e-6
    assert final(EF21(TopK(2), gamma=gamma)) < 1e-20


# --- theorems, with gamma='theory' ---


def test_gd_contracts_linearly():
    """docs/methods.md, GD: |x_k - x*|^2 <= (1 - mu/L)^k |x_0 - x*|^2, in every round."""
    problem = squares(4, 8, seed=21)
    c, x_star = problem.constants(4), problem.x_star
    errors = [np.sum((x - x_star) ** 2) for x in trajectory(start(GD(values="f8"), problem, 4), 40)]
    assert all(e <= (1 - c.mu / c.L) ** k * errors[0] * (1 + 1e-10) for k, e in enumerate(errors))


def test_agd_contracts_with_the_root_of_the_condition_number():
    """docs/methods.md, AGD: f_k - f* <= (1 - sqrt(mu/L))^k (f_0 - f* + mu/2 |x_0 -
    x*|^2), which GD misses here."""
    problem = Quadratics(d=40, noise=0.2, lam=1e-3)
    c = problem.constants(3)
    x_star = agd(gradients(problem, 3), problem.x0(), c.L, c.mu, 4000)[-1]
    bound = (
        objective_value(problem, 3, problem.x0()) - c.f_star + c.mu / 2 * np.sum((problem.x0() - x_star) ** 2)
    )

    def gaps(method):
        return [objective_value(problem, 3, x) - c.f_star for x in trajectory(start(method, problem, 3), 400)]

    rate = 1 - sqrt(c.mu / c.L)
    assert all(gap <= rate**k * bound + 1e-12 for k, gap in enumerate(gaps(AGD(values="f8"))))
    assert not all(gap <= rate**k * bound + 1e-12 for k, gap in enumerate(gaps(GD(values="f8"))))


def test_agd_without_strong_convexity():
    """docs/methods.md, AGD, mu = 0: f_k - f* <= 2 L |x_0 - x*|^2 / (k + 1)^2."""
    problem = Quadratics(d=40, noise=0.2, lam=1e-3)
    c = problem.constants(3)
    x_star = agd(gradients(problem, 3), problem.x0(), c.L, c.mu, 4000)[-1]
    distance = np.sum((problem.x0() - x_star) ** 2)
    iterates = trajectory(start(AGD(mu=0, values="f8"), problem, 3), 200)
    for k, x in enumerate(iterates[1:], 1):
        assert objective_value(problem, 3, x) - c.f_star <= 2 * c.L * distance / (k + 1) ** 2 + 1e-12


@pytest.mark.parametrize("Q", [RandK(2), RandK(2, mask="shared"), Natural(), Ternary(), PermK()], ids=repr)
def test_diana_contracts_linearly(Q):
    """docs/methods.md, DIANA.  With V = |x - x*|^2 + M gamma^2 mean |h_i - grad
    f_i(x*)|^2, M = 4A/alpha, A for omega/n: E V_k <= max{1 - gamma mu, 1 - alpha/2}^k
    V_0 (Gorbunov, Hanzely, Richtarik, 2020, Theorem 4.1, DIANA).  The mean over 10
    seeds, at every tenth round; runs lie well below the bound, so no slack is given."""
    problem, n, d = squares(4, 8, seed=21), 4, 8
    mu, x_star = problem.constants(n).mu, problem.x_star
    limits = [g(x_star) for g in gradients(problem, n)]
    A, _ = Q.ab(d, n)
    values = []
    for seed in range(10):
        loop = start(DIANA(Q), problem, n, seed)
        gamma, alpha = loop.method.gamma, loop.method.alpha
        history = []
        for k in range(91):
            if k % 10 == 0:
                spread = np.mean([np.sum((w.h - limits[i]) ** 2) for i, w in loop.workers.items()])
                history.append(np.sum((loop.replica.x - x_star) ** 2) + 4 * A / alpha * gamma**2 * spread)
            loop.step(k)
        values.append(history)
    rate = max(1 - gamma * mu, 1 - alpha / 2)
    mean = np.mean(values, axis=0)
    assert mean[-1] < mean[0] / 10
    assert all(v <= rate ** (10 * j) * mean[0] for j, v in enumerate(mean))


@pytest.mark.parametrize(
    "Q", [RandK(4), RandK(4, mask="shared"), PermK(), Natural(), Quantized(PermK(), Natural())], ids=repr
)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_marina_reaches_the_rate_of_its_theorem(Q, noise):
    """docs/methods.md, MARINA: (1/T) sum_{t<T} E |grad f(x_t)|^2 <= 2 Delta_0 / (gamma T).  The mean over 4
    seeds, no slack: the left side is half to three quarters of the right one, and means spread by 6 %."""
    problem, n, T = Quadratics(d=20, noise=noise, lam=1e-3), 5, 100
    gap = objective_value(problem, n, problem.x0()) - problem.constants(n).f_star
    means = []
    for seed in range(4):
        loop = start(MARINA(Q), problem, n, seed)
        means.append(np.mean([grad_norm_sq(problem, n, x) for x in trajectory(loop, T - 1)]))
    assert np.mean(means) <= 2 * gap / (loop.method.gamma * T)


@pytest.mark.parametrize("C", [TopK(4), TopK(1), Sign(), Identity()], ids=repr)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_ef21_reaches_the_rate_of_its_theorem(C, noise):
    """docs/methods.md, EF21: (1/T) sum_{t<T} |grad f(x_t)|^2 <= 2 Delta_0 / (gamma T) + D_0^2 / (theta T),
    for certain, C being deterministic; D_0 = mean |g_i^0 - grad f_i(x^0)|."""
    problem, n, T = Quadratics(d=20, noise=noise, lam=1e-3), 5, 150
    x0 = problem.x0()
    gap = objective_value(problem, n, x0) - problem.constants(n).f_star
    local = [g(x0) for g in gradients(problem, n)]
    D0 = np.mean([sqrt(np.sum((codec(C, 0, n)(i, 0, g) - g) ** 2)) for i, g in enumerate(local)])
    theta = 1 - sqrt(1 - C.alpha(20, n))
    loop = start(EF21(C), problem, n)
    mean = np.mean([grad_norm_sq(problem, n, x) for x in trajectory(loop, T - 1)])
    assert mean <= 2 * gap / (loop.method.gamma * T) + D0**2 / (theta * T)
