"""Ridge regression: constants that are attained, and the minimum."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.base.errors import DataError
from mpicomp.data import load_dataset, rows_of
from mpicomp.problems import LeastSquares, least_squares
from tests.problems.test_problems import assert_gradient, assert_together, rng


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MPICOMP_CACHE", str(tmp_path / "cache"))


def data_file(tmp_path, m: int, d: int) -> str:
    X = rng(1).normal(size=(m, d)) * np.exp(rng(2).normal(size=(m, 1)))
    X[:, -1] = X[:, 0]  # a singular Gram matrix
    path = tmp_path / f"{m} x {d}"
    rows = (
        f"{j % 2} " + " ".join(f"{k}:{v!r}" for k, v in enumerate(a.tolist(), 1)) for j, a in enumerate(X)
    )
    path.write_text("\n".join(rows))
    return str(path)


def shards(problem: LeastSquares, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    data = load_dataset(problem.data)
    X, rows = data.X.toarray(), [rows_of(i, n, data.y, problem.split) for i in range(n)]
    return [(X[r], data.y[r]) for r in rows]


def test_value_and_gradient_by_hand(tmp_path):
    problem, x = LeastSquares(data_file(tmp_path, 23, 5), lam=0.3), rng(0).normal(size=5)
    for i, (A, b) in enumerate(shards(problem, 3)):
        f = problem.objective(i, 3)
        value = np.sum((A @ x - b) ** 2) / (2 * len(b)) + 0.15 * np.sum(x * x)
        assert f.value(x) == pytest.approx(value, rel=1e-13)
        assert f.grad(x) == pytest.approx(A.T @ (A @ x - b) / len(b) + 0.3 * x, rel=1e-12, abs=1e-14)
        assert_gradient(f, x)
        assert_together(f, x)


@pytest.mark.parametrize("n", [1, 4, 23])
@pytest.mark.parametrize("lam", [0.0, 0.3])
def test_every_constant_is_the_least_that_holds(tmp_path, n, lam):
    """The operators whose greatest eigenvalues the constants are, made of nothing but gradients."""
    problem = LeastSquares(data_file(tmp_path, 23, 5), lam=lam)
    found, fs = problem.constants(n), [problem.objective(i, n) for i in range(n)]
    zero = np.zeros(5)
    singles = [[f.part(np.array([j])) for j in range(f.samples)] for f in fs]

    def differences(objectives, v):
        return [f.grad(v) - f.grad(zero) for f in objectives]

    def squares(v):  # (mean_i H_i^2) v
        return np.mean(
            [f.grad(d) - f.grad(zero) for f, d in zip(fs, differences(fs, v), strict=True)], axis=0
        )

    def mean(v):
        return np.mean(differences(fs, v), axis=0)

    def variance(v):
        return squares(v) - mean(mean(v))

    def samples(v):
        parts = [
            np.mean([f.grad(f.grad(v) - f.grad(zero)) - f.grad(zero) for f in p], axis=0) for p in singles
        ]
        return np.mean(parts, axis=0)

    def top(operator):
        matrix = np.array([operator(e) for e in np.eye(5)])
        return max(np.linalg.eigvalsh((matrix + matrix.T) / 2)[-1], 0)

    assert found.L == pytest.approx(top(mean), rel=1e-12)
    assert found.L_plus == pytest.approx(np.sqrt(top(squares)), rel=1e-12)
    assert found.L_pm == pytest.approx(np.sqrt(top(variance)), rel=1e-10, abs=1e-6 * found.L)
    assert found.L_sample == pytest.approx(np.sqrt(top(samples)), rel=1e-12)
    within = np.sqrt(top(lambda v: samples(v) - squares(v)))
    assert found.L_sigma == pytest.approx(within, rel=1e-10, abs=1e-6 * found.L)
    assert found.mu == lam
    for i, (A, _) in enumerate(shards(problem, n)):
        assert found.L_i[i] == pytest.approx(np.linalg.eigvalsh(A.T @ A / len(A))[-1] + lam, rel=1e-12)


@pytest.mark.parametrize("lam", [0.0, 1e-6, 0.3])
def test_the_minimum(tmp_path, lam):
    problem, n = LeastSquares(data_file(tmp_path, 23, 5), lam=lam), 3
    x = np.zeros(5)
    parts = shards(problem, n)
    H = np.mean([A.T @ A / len(A) for A, _ in parts], axis=0) + lam * np.eye(5)
    x = np.linalg.pinv(H, rcond=1e-12) @ np.mean([A.T @ b / len(b) for A, b in parts], axis=0)
    at_minimum = np.mean([problem.objective(i, n).value(x) for i in range(n)])
    f_star = problem.constants(n).f_star
    assert f_star == pytest.approx(at_minimum, rel=1e-12)
    near = [x + 1e-3 * rng(k).normal(size=5) for k in range(50)]
    assert all(np.mean([problem.objective(i, n).value(y) for i in range(n)]) > f_star for y in near)


@pytest.mark.parametrize("lam", [0.0, 1e-6])
def test_the_minimum_of_features_of_unlike_sizes(lam):
    """By their Gram matrix it was 10,000 times too high: the small ones were lost beside the large ones."""
    sizes, one = 10.0 ** np.array([-4, 0, 4]), rng(3).normal(size=(40, 3))
    b = one @ [1.0, 2, 3] + 0.01 * rng(4).normal(size=40)
    rows = np.vstack([one / np.sqrt(40), np.sqrt(lam) * np.diag(1 / sizes)])
    residuals = np.linalg.lstsq(rows, np.append(b / np.sqrt(40), np.zeros(3)), rcond=None)[1]
    found = LeastSquares(data=(one * sizes, b), lam=lam).constants(1).f_star
    assert found == pytest.approx(residuals[0] / 2, rel=1e-9)


def test_above_the_exact_dimension_the_bounds_take_over(tmp_path, monkeypatch):
    path = data_file(tmp_path, 23, 5)
    exact = LeastSquares(path, lam=0.1).constants(4)
    monkeypatch.setattr(least_squares, "EXACT", 4)
    bound = LeastSquares(path, lam=0.1).constants(4)
    assert bound.f_star is None
    assert (bound.L, bound.L_i, bound.mu) == (exact.L, exact.L_i, exact.mu)
    for name in ("L_plus", "L_pm", "L_sample", "L_sigma"):
        assert getattr(exact, name) <= getattr(bound, name) * (1 + 1e-12)
    assert exact.L_pm < 0.9 * bound.L_pm


def test_the_condition_number_asked_for_is_met():
    found = LeastSquares("breast_cancer", cond=1e3).constants(4)
    assert found.L / found.mu == pytest.approx(1e3, rel=1e-12)


def test_constants_have_the_same_bits_from_the_cache(monkeypatch, tmp_path):
    first = LeastSquares("breast_cancer", lam=0.1).constants(5)
    assert LeastSquares("breast_cancer", lam=0.1).constants(5) == first
    monkeypatch.setenv("MPICOMP_CACHE", str(tmp_path / "another"))
    assert LeastSquares("breast_cancer", lam=0.1).constants(5) == first
    assert LeastSquares("breast_cancer", lam=0.2).constants(5).f_star > first.f_star


def test_targets_whose_squares_overflow_are_refused():
    X, y = rng(3).normal(size=(20, 3)), rng(4).normal(size=20)
    for scale, taken in ((1e149, True), (1e160, False)):
        problem = LeastSquares((X, y * (scale / np.abs(y).max())), lam=0.1)
        if taken:
            assert np.isfinite(problem.constants(2).f_star)
        else:
            with pytest.raises(
                DataError, match=r"the given data has targets as large as 1e\+160.* Scale them"
            ):
                problem.constants(2)
