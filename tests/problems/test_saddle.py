"""The strict saddle: its Hessian, its minima, its workers that cancel."""

from __future__ import annotations

import numpy as np
import pytest

import mpicomp
from mpicomp import GD
from mpicomp.base.errors import ConfigError
from mpicomp.problems import Noisy, Saddle
from tests.problems.test_problems import assert_gradient, rng


@pytest.mark.parametrize("d", [2, 3, 9])
def test_gradients(d):
    for i in range(3):
        f = Saddle(d=d, noise=0.7, curvature=3.0).objective(i, 3)
        assert_gradient(f, rng(i).normal(size=d))


def test_the_plane_is_the_published_function():
    f = Saddle(d=2).objective(0, 1)
    for x in rng(0).normal(size=(20, 2)):
        assert f.value(x) == pytest.approx(x[0] ** 2 / 2 - x[1] ** 2 / 2 + x[1] ** 4 / 4, rel=1e-13)
    assert Saddle(d=5, curvature=4.0).objective(0, 1).value(np.array([0, 0, 1.0, 0, 2])) == 10


def test_the_start_is_a_strict_saddle_and_the_minima_are_known():
    problem = Saddle(d=4, curvature=2.0)
    f, x0 = problem.objective(0, 1), problem.x0()
    assert np.array_equal(f.grad(x0), np.zeros(4))
    h = 1e-6
    hessian = np.array([(f.grad(h * e) - f.grad(-h * e)) / (2 * h) for e in np.eye(4)])
    assert np.linalg.eigvalsh(hessian) == pytest.approx([-1, 1, 2, 2], abs=1e-9)
    for sign in (-1.0, 1.0):
        x = np.array([0, sign, 0, 0])
        assert np.array_equal(f.grad(x), np.zeros(4))
        assert f.value(x) == problem.constants(1).f_star == -0.25
    assert min(f.value(x) for x in 2 * rng(1).normal(size=(2000, 4))) > -0.25


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_the_linear_terms_differ_and_cancel_exactly(n):
    problem = Saddle(d=6, noise=0.5)
    h = np.array([problem.objective(i, n).grad(problem.x0()) for i in range(n)])
    total = np.zeros(6)
    for row in h:  # in worker order, as the server sums
        total += row
    assert np.array_equal(total, np.zeros(6))
    assert len({row.tobytes() for row in h}) == n
    assert np.all(h[-1] == 0) == (n % 2 == 1)


def test_the_linear_terms_have_the_stated_size():
    """Coordinates of 400 pairs in R^6 at 5 standard errors of their mean square."""
    problem = Saddle(d=6, noise=0.5)
    h = np.array([problem.objective(2 * i, 800).grad(problem.x0()) for i in range(400)])
    assert np.mean((h / 0.5) ** 2) == pytest.approx(1, abs=5 * np.sqrt(2 / h.size))
    assert not np.array_equal(h[0], Saddle(d=6, noise=0.5, seed=1).objective(0, 800).grad(np.zeros(6)))


@pytest.mark.parametrize("curvature", [0.5, 30.0])
def test_the_constants_bound_gradient_differences_where_they_say(curvature):
    problem, n = Saddle(d=3, noise=0.4, curvature=curvature), 4
    found, fs = problem.constants(n), [problem.objective(i, n) for i in range(n)]
    best = 0.0
    ends = [(np.array([0, 2.0, 0]), np.array([0, 2 - 1e-4, 0])), (np.zeros(3), np.array([0, 0, 1.0]))]
    for x, y in [*ends, *rng(3).uniform(-2, 2, size=(500, 2, 3))]:
        D = np.array([f.grad(x) - f.grad(y) for f in fs])
        step, mean = np.sum((x - y) ** 2), D.mean(axis=0)
        assert np.mean(np.sum(D**2, axis=1)) <= found.L_plus**2 * step * (1 + 1e-9)
        assert np.mean(np.sum(D**2, axis=1)) - np.sum(mean**2) <= 1e-12 * (1 + np.sum(mean**2))  # L_pm = 0
        best = max(best, np.sqrt(np.sum(mean**2) / step) / found.L)
    assert found.L_pm == 0
    assert 0.999 < best <= 1 + 1e-9


def test_gradient_descent_stays_on_the_saddle_for_ever():
    run = mpicomp.run(GD(gamma=0.05), Saddle(d=5, noise=0.5), workers=4, rounds=200)
    assert np.array_equal(run.x, np.zeros(5))
    assert run.rows[-1].f == 0


def test_noise_on_the_gradients_leads_away_from_it():
    """SGD by hand: from the saddle to a minimum."""
    f, x = Noisy(Saddle(d=5), 0.1).objective(0, 1), np.zeros(5)
    for k in range(400):
        x -= 0.1 * f.batch_grad(x, 1, mpicomp.Key(seed=0, round=k, worker=0, n=1).private("sgd"))
    assert abs(abs(x[1]) - 1) < 0.1
    assert f.value(x) < -0.24


def test_impossible_parameters_are_refused():
    for wrong in ({"d": 1}, {"curvature": 0}, {"curvature": np.inf}, {"noise": -1}, {"seed": -1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Saddle(**wrong)
    with pytest.raises(ConfigError, match="at least 1 worker"):
        Saddle().constants(0)
