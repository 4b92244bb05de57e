"""Smoothness matrices: f_i(y) <= f_i(x) + <grad f_i(x), y - x> + |y - x|^2_{L_i} / 2; and the constants."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.problems import (
    Constants,
    LeastSquares,
    Logistic,
    Noisy,
    NonconvexGLM,
    NonconvexLogistic,
    Problem,
    Quadratics,
    Saddle,
)

rng = np.random.default_rng
N = 4


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MPICOMP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def small(tmp_path):
    """37 rows in 6 dimensions; no row of the first class has coordinate 3."""
    X = rng(1).normal(size=(37, 6)) * np.geomspace(0.2, 3, 6)
    y = np.where(rng(3).random(37) < 0.4, 1, -1)
    X[y < 0, 3] = 0
    rows = zip(y, X, strict=True)
    lines = (f"{s} " + " ".join(f"{k}:{v!r}" for k, v in enumerate(row.tolist(), 1)) for s, row in rows)
    path = tmp_path / "small"
    path.write_text("\n".join(lines))
    return str(path)


def problems(data: str) -> list[Problem]:
    return [
        Logistic(data, lam=0.01, split="sorted"),
        Logistic(data, cond=50.0, split="sorted"),
        LeastSquares(data, lam=0.1, split="sorted"),
        NonconvexLogistic(data, lam=0.2, split="sorted"),
        NonconvexGLM(data, lam=0.0, split="sorted"),
        Quadratics(d=6, noise=0.1, lam=0.1),
        Quadratics(d=6, noise=2.0, lam=0.1),
        Noisy(Quadratics(d=6, noise=0.1, lam=0.1), sigma=1.0),
    ]


@pytest.mark.parametrize("index", range(8))
def test_a_smoothness_matrix_is_one(small, index):
    """The inequality at random points, near and far; symmetric, without negative eigenvalues."""
    problem = problems(small)[index]
    for i in range(N):
        f = problem.objective(i, N)
        L = f.smoothness_matrix()
        assert L.shape == (6, 6) and L.dtype == np.float64
        assert np.abs(L - L.T).max() <= 1e-15 * np.abs(L).max()
        assert np.linalg.eigvalsh(L)[0] >= -1e-12 * np.abs(L).max()
        for seed in range(50):
            x = rng([i, seed]).normal(size=6) * 3
            step = rng([i, seed, 1]).normal(size=6) * 10.0 ** rng(seed).uniform(-2, 1)
            above = f.value(x) + np.sum(f.grad(x) * step) + step @ L @ step / 2
            assert f.value(x + step) <= above + 1e-12 * (1 + abs(above))


@pytest.mark.parametrize("index", range(8))
def test_its_top_and_its_diagonal_are_the_constants(small, index):
    """λ_max(L_i) = L_i, λ_max(mean L_i) = L where no f_i is without a lower bound, and the diagonals."""
    problem = problems(small)[index]
    c = problem.constants(N)
    Ls = [problem.objective(i, N).smoothness_matrix() for i in range(N)]
    assert c.L_i == pytest.approx([np.linalg.eigvalsh(L)[-1] for L in Ls], rel=1e-12)
    mean = np.linalg.eigvalsh(np.mean(Ls, axis=0))[-1]
    assert c.L == pytest.approx(mean, rel=1e-12) or (index == 6 and c.L < mean)
    assert np.array_equal(c.diagonals(), [np.diagonal(L) for L in Ls])


@pytest.mark.parametrize("index", range(8))
def test_gradients_differ_within_its_range(small, index):
    """So that whitening and its inverse are the identity on them; shards of the GLM lack a coordinate."""
    problem = problems(small)[index]
    for i in range(N):
        f = problem.objective(i, N)
        L = f.smoothness_matrix()
        difference = f.grad(rng(i).normal(size=6)) - f.grad(rng(i + 9).normal(size=6))
        assert np.abs(L @ (np.linalg.pinv(L, rcond=1e-10) @ difference) - difference).max() < 1e-10
    if isinstance(problem, NonconvexGLM):
        empty = [not problem.objective(i, N).smoothness_matrix()[3].any() for i in range(N)]
        assert any(empty) and not all(empty)


def test_the_matrix_of_a_nonconvex_quadratic_is_its_absolute_value():
    problem = Quadratics(d=9, noise=2.0, lam=0.1)
    convex = 0
    for i in range(6):
        f = problem.objective(i, 6)
        A = np.array([f.grad(e) - f.grad(np.zeros(9)) for e in np.eye(9)])
        values, V = np.linalg.eigh(A)
        L = f.smoothness_matrix()
        assert np.abs(L - V @ np.diag(np.abs(values)) @ V.T).max() < 1e-14 * np.abs(A).max() * 9
        convex += values[0] > 0
        if values[0] > 0:
            assert np.abs(L - A).max() <= 1e-15 * np.abs(A).max()
    assert 0 < convex < 6


def test_the_matrix_is_formed_from_the_shard_alone(small):
    """(1/4 m_i) sum a a' + lam I over the worker's own rows, for the logistic loss."""
    problem = Logistic(small, lam=0.01, split="sorted")
    for i in range(N):
        f = problem.objective(i, N)
        rows = f.X.toarray()
        wanted = sum(np.outer(a, a) for a in rows) / (4 * len(rows)) + 0.01 * np.eye(6)
        assert np.abs(f.smoothness_matrix() - wanted).max() < 1e-14


def test_a_problem_without_one_says_so():
    with pytest.raises(ConfigError, match=r"TiltedSaddle has no smoothness matrix.*without the plus"):
        Saddle(d=3).objective(0, 2).smoothness_matrix()
    assert Saddle(d=3).constants(2).diagonals is None


def test_constants_are_equal_whatever_their_diagonals_come_from():
    one, two = (Constants(1.0, (1.0,), 1.0, 0.0, diagonals=lambda n=n: np.ones((1, n))) for n in (1, 2))
    assert one == two
