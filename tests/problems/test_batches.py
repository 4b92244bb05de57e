"""Stochastic gradients: which samples a stream names, what their mean is, how smooth they are."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.linalg import eigvalsh

from mpicomp.base.errors import ConfigError
from mpicomp.data import load_dataset, rows_of
from mpicomp.keys import Key, Stream
from mpicomp.problems import (
    LeastSquares,
    Logistic,
    Noisy,
    NonconvexGLM,
    NonconvexLogistic,
    Quadratics,
    Softmax,
)

rng = np.random.default_rng


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MPICOMP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def small(tmp_path):
    """23 rows in 5 dimensions, of very different sizes."""
    X = rng(1).normal(size=(23, 5)) * np.exp(rng(2).normal(size=(23, 1)))
    X[rng(3).random(X.shape) < 0.4] = 0
    lines = (
        f"{j % 2} " + " ".join(f"{k}:{v!r}" for k, v in enumerate(row.tolist(), 1) if v)
        for j, row in enumerate(X)
    )
    path = tmp_path / "small"
    path.write_text("\n".join(lines))
    return str(path)


def stream(k: int, worker: int = 0) -> Stream:
    return Key(seed=5, round=k, worker=worker, n=4).private("test/batch")


PROBLEMS = [
    lambda data: Logistic(data, lam=0.2),
    lambda data: NonconvexLogistic(data, lam=0.2),
    lambda data: NonconvexGLM(data),
]


@pytest.mark.parametrize("make", PROBLEMS)
def test_a_batch_is_the_mean_over_the_rows_that_the_stream_names(small, make):
    f = make(small).objective(1, 3)
    m, x = f.samples, rng(0).normal(size=5)
    assert m == f.X.shape[0]
    for b in (1, 3, m - 1):
        rows = np.sort(stream(b).permutation(m, 0, b))
        margins = f.y[rows] * (f.X.toarray()[rows] @ x)
        by_hand = np.mean((f.y[rows] * f.phi.slope(margins))[:, None] * f.X.toarray()[rows], axis=0)
        by_hand += f.lam * f.rho.slope(x)
        assert f.batch_grad(x, b, stream(b)) == pytest.approx(by_hand, rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("make", PROBLEMS)
def test_the_same_stream_names_the_same_samples_at_every_point(small, make):
    """With the rows fixed, the batch gradients at x and y are those of one function."""
    f = make(small).objective(0, 2)
    x, y = rng(0).normal(size=(2, 5))
    for k in range(20):
        part = f.part(np.sort(stream(k).permutation(f.samples, 0, 4)))
        assert f.batch_grad(x, 4, stream(k)).tobytes() == part.grad(x).tobytes()
        assert f.batch_grad(y, 4, stream(k)).tobytes() == part.grad(y).tobytes()
    # Other rounds and workers draw others: 80 draws do not miss 6 of 12 rows.
    singles = {f.batch_grad(x, 1, stream(k, w)).tobytes() for k in range(20) for w in range(4)}
    assert len(singles) > f.samples // 2


@pytest.mark.parametrize("make", PROBLEMS)
def test_the_whole_batch_is_the_gradient_bit_for_bit(make):
    for i in range(3):
        f = make("breast_cancer").objective(i, 3)
        x = rng(i).normal(size=30)
        assert f.batch_grad(x, f.samples, stream(i)).tobytes() == f.grad(x).tobytes()
        everything = f.part(np.arange(f.samples))
        assert everything.grad(x).tobytes() == f.grad(x).tobytes()  # the increasing order is that of the rows


@pytest.mark.parametrize("make", PROBLEMS)
def test_the_mean_over_all_batches_is_the_gradient(small, make):
    f = make(small).objective(0, 4)  # 6 rows
    x = rng(4).normal(size=5)
    for b in range(1, 7):
        batches = [f.part(np.array(rows)).grad(x) for rows in combinations(range(6), b)]
        assert np.mean(batches, axis=0) == pytest.approx(f.grad(x), rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("b", [1, 7])
def test_batches_are_unbiased(small, b):
    """The mean of N batches is within 5 standard errors of the gradient in each of 5 coordinates: the
    chance of a failure, were the batches fair, is below 1e-5."""
    f, N = Logistic(small, lam=0.1).objective(0, 1), 4000
    x = rng(9).normal(size=5)
    draws = np.array([f.batch_grad(x, b, stream(k)) for k in range(N)])
    error = draws.std(axis=0) / np.sqrt(N)
    assert np.all(np.abs(draws.mean(axis=0) - f.grad(x)) < 5 * error)
    # Without replacement the variance of one sample is divided by b, and shrinks by (m-b)/(m-1) more.
    singles = np.array([f.part(np.array([j])).grad(x) for j in range(f.samples)])
    variance = np.mean(np.sum((singles - f.grad(x)) ** 2, axis=1)) / b * (f.samples - b) / (f.samples - 1)
    assert np.mean(np.sum((draws - f.grad(x)) ** 2, axis=1)) == pytest.approx(variance, rel=0.15)


@pytest.mark.parametrize("b", [0, -1, 24])
def test_a_batch_that_cannot_be_is_refused(small, b):
    f = Logistic(small, lam=0.1).objective(0, 1)
    with pytest.raises(ConfigError, match=f"b = {b} of a worker's 23 samples; allowed: 1 to 23"):
        f.batch_grad(np.zeros(5), b, stream(0))


def test_a_problem_without_samples_says_which_have_them():
    f = Quadratics(d=5).objective(0, 1)
    assert f.samples is None
    with pytest.raises(
        ConfigError, match=r"Tridiagonal has no stochastic gradients.*noisy\(PROBLEM, sigma\)"
    ):
        f.batch_grad(np.zeros(5), 1, stream(0))


# L_sample


@pytest.mark.parametrize("make", PROBLEMS)
@pytest.mark.parametrize("n", [1, 4, 23])
def test_l_sample_equals_the_dense_formula(small, make, n):
    problem, data = make(small), load_dataset(small)
    c, r = problem.phi.curvature, problem.lam * problem.rho.curvature
    shards = [data.X.toarray()[rows_of(i, n, data.y, problem.split)] for i in range(n)]
    squares = [np.mean([a @ a * np.outer(a, a) for a in A], axis=0) for A in shards]
    q = eigvalsh(np.mean(squares, axis=0))[-1]
    s = eigvalsh(np.mean([A.T @ A / len(A) for A in shards], axis=0))[-1]
    found = problem.constants(n)
    assert found.L_sample == pytest.approx(np.sqrt(c**2 * q + 2 * r * c * s + r**2), rel=1e-12)
    assert found.L_sample >= found.L_plus * (1 - 1e-12)
    assert found.L_sigma == pytest.approx(c * np.sqrt(q), rel=1e-12)
    assert found.L_sigma <= found.L_sample
    if n == 23:  # a worker is a sample
        assert found.L_sample == pytest.approx(found.L_plus, rel=1e-12)


@pytest.mark.parametrize("make", PROBLEMS)
def test_l_sample_and_l_sigma_bound_every_gradient_difference(small, make):
    """L_sample bounds the mean square of the samples' gradient differences, L_sigma their variance."""
    n, problem = 3, make(small)
    found = problem.constants(n)
    fs = [problem.objective(i, n) for i in range(n)]
    singles = [[f.part(np.array([j])) for j in range(f.samples)] for f in fs]
    near = 0.0
    for scale in (1e-3, 1.0, 10.0):
        for x, y in scale * rng(4).normal(size=(40, 2, 5)):
            D = [np.array([g.grad(x) - g.grad(y) for g in part]) for part in singles]
            spread = np.mean([np.mean(np.sum(D_i**2, axis=1)) for D_i in D])
            variance = np.mean([np.mean(np.sum((D_i - D_i.mean(axis=0)) ** 2, axis=1)) for D_i in D])
            assert variance <= found.L_sigma**2 * np.sum((x - y) ** 2) * (1 + 1e-9)
            ratio = spread / np.sum((x - y) ** 2) / found.L_sample**2
            assert ratio <= 1 + 1e-9
            near = max(near, ratio)
    assert near > 0.1  # the bound is no empty one: directions at random come this close


@pytest.mark.parametrize(
    "problem",
    [
        Logistic("digits", lam=0.1),
        LeastSquares("digits", lam=0.1),
        NonconvexLogistic("digits"),
        NonconvexGLM("digits"),
        Softmax("digits", lam=0.1),
    ],
    ids=lambda p: type(p).__name__,
)
def test_the_constants_say_how_many_samples_there_are(problem):
    """1797 images on 4 workers: the largest shard has one more than the others."""
    assert problem.constants(4).samples == 450 == max(problem.objective(i, 4).samples for i in range(4))
    assert Noisy(problem, 1.0).constants(4).samples is None
