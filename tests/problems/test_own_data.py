"""Problems on a user's own arrays: content, refusals, uneven shards, constants by brute force."""

import numpy as np
import pandas as pd
import pytest
import scipy

from mpicomp.base.errors import ConfigError, DataError
from mpicomp.data import rows_of, shard_sizes
from mpicomp.data.shards import _shares
from mpicomp.problems import MLP, LeastSquares, Logistic, NonconvexGLM, Quadratics, Softmax
from mpicomp.text.config import to_text

rng = np.random.default_rng(1)
X = rng.normal(size=(40, 3)).astype(np.float32)
Y = np.array(["cat", "dog", "owl"])[rng.integers(3, size=40)]
BINARY = (Y == "cat").astype(int)
UNEVEN = np.repeat([0, 1, 2], [3, 7, 30])  # the worker of each row


def slope(f, x, h=1e-6):
    return np.array([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))])


def test_equal_content_gives_equal_problems_with_a_short_text():
    p, q = Logistic(data=(X, BINARY), lam=0.1), Logistic(data=(scipy.sparse.csr_array(X), BINARY), lam=0.1)
    assert p == q and hash(p) == hash(q) and p.fingerprint() == q.fingerprint()
    assert p != Logistic(data=(2 * X, BINARY), lam=0.1)
    assert f"data=<40 x 3, sha256 {p.fingerprint()[:12]}>" in repr(p)
    assert p.fingerprint()[:12] in to_text(p)


@pytest.mark.parametrize(("cls", "y"), [(LeastSquares, BINARY), (Softmax, Y)])
def test_later_writes_of_the_user_change_nothing(cls, y):
    own = X.copy()
    problem = cls(data=(own, y), lam=0.1)
    before = problem.objective(0, 2).grad(np.ones(problem.dimension()))
    own[:] = 0
    assert np.array_equal(problem.objective(0, 2).grad(np.ones(problem.dimension())), before)


@pytest.mark.parametrize("split", ["shuffled", "sorted", "dirichlet(0.1)", UNEVEN])
@pytest.mark.parametrize(
    ("cls", "y"),
    [(Logistic, BINARY), (NonconvexGLM, BINARY), (LeastSquares, rng.normal(size=40)), (Softmax, Y)],
)
def test_gradients_are_slopes_and_constants_hold(cls, y, split):
    problem, n = cls(data=(X, y), lam=0.1, split=split), 3
    c, d = problem.constants(n), problem.dimension()
    fs = [problem.objective(i, n) for i in range(n)]
    assert [f.samples for f in fs] == problem.shard_sizes(n) and c.samples == max(problem.shard_sizes(n))
    assert sum(problem.shard_sizes(n)) == 40
    for _ in range(5):
        x, v = rng.normal(size=(2, d))
        np.testing.assert_allclose(fs[0].grad(x), slope(fs[0].value, x), rtol=1e-5, atol=1e-7)
        D = np.array([f.grad(x) - f.grad(x + v) for f in fs])
        squares, length = np.sum(D**2, axis=1), v @ v
        assert np.linalg.norm(D.mean(axis=0)) <= c.L * np.sqrt(length) * (1 + 1e-9)
        assert (np.sqrt(squares) <= np.array(c.L_i) * np.sqrt(length) * (1 + 1e-9)).all()
        assert squares.mean() <= c.L_plus**2 * length * (1 + 1e-9)
        variance = squares.mean() - np.sum(D.mean(axis=0) ** 2)
        assert variance <= c.L_pm**2 * length * (1 + 1e-9)


def test_least_squares_on_real_targets_is_exact_with_uneven_shards():
    y, n, lam = rng.normal(size=40), 3, 0.1
    problem = LeastSquares(data=(X, y), lam=lam, split=UNEVEN)
    A = X.astype(float)
    w = 1 / (n * np.array([3, 7, 30])[UNEVEN])
    H = (A.T * w) @ A + lam * np.eye(3)
    x = np.linalg.solve(H, A.T @ (w * y))
    c = problem.constants(n)
    assert c.L == pytest.approx(np.linalg.eigvalsh(H)[-1])
    assert c.f_star == pytest.approx(np.sum(w * (A @ x - y) ** 2) / 2 + lam / 2 * x @ x)
    assert np.mean([problem.objective(i, n).value(x) for i in range(n)]) == pytest.approx(c.f_star)


@pytest.mark.parametrize("split", [UNEVEN, "dirichlet(0.5)"])
def test_the_constants_of_samples_are_those_of_brute_force_with_uneven_shards(split):
    n, lam = 3, 0.1
    problem = LeastSquares(data=(X, rng.normal(size=40)), lam=lam, split=split)
    y, A, eye = problem.dataset().y, X.astype(float), np.eye(3)
    shards = [A[rows_of(i, n, y, split)] for i in range(n)]
    assert len({len(rows) for rows in shards}) > 1
    single = [[np.outer(a, a) + lam * eye for a in rows] for rows in shards]  # H_ij
    whole = [np.mean(H, axis=0) for H in single]
    samples = np.mean([np.mean([h @ h for h in H], axis=0) for H in single], axis=0)
    within = np.mean(
        [np.mean([(h - H_i) @ (h - H_i) for h in H], axis=0) for H, H_i in zip(single, whole, strict=True)],
        axis=0,
    )
    c = problem.constants(n)
    assert c.L_sample == pytest.approx(np.sqrt(np.linalg.eigvalsh(samples)[-1]))
    assert c.L_sigma == pytest.approx(np.sqrt(np.linalg.eigvalsh(within)[-1]))
    assert c.L_ij == pytest.approx(max(np.linalg.eigvalsh(h)[-1] for H in single for h in H))


def test_logistic_on_a_shard_of_one_class():
    problem = Logistic(data=(X, BINARY), lam=0.1, split="sorted")
    y, x = problem.dataset().y, rng.normal(size=3)
    rows = rows_of(0, 8, y, "sorted")
    assert set(y[rows]) == {-1}
    f = problem.objective(0, 8)
    mean = np.mean(np.log1p(np.exp(X[rows].astype(float) @ x)))
    assert f.value(x) == pytest.approx(mean + 0.05 * x @ x)
    np.testing.assert_allclose(f.grad(x), slope(f.value, x), rtol=1e-5, atol=1e-7)


def test_a_shard_of_one_class_and_texts_as_labels():
    for problem in (Softmax(data=(X, Y), split="sorted"), MLP(data=(X, Y), split="sorted", hidden=2)):
        shard = problem.shard(0, 8)
        assert set(shard[1]) == {0} and problem.images().classes == 3
        assert np.isfinite(problem.objective(0, 8).value(np.asarray(problem.x0(), dtype=float)))


@pytest.mark.parametrize("alpha", ["0.001", "0.1", "100"])
@pytest.mark.parametrize("n", [1, 7, 40])
def test_dirichlet_leaves_no_worker_empty_and_loses_no_row(alpha, n):
    split = f"dirichlet({alpha})"
    rows = [rows_of(i, n, BINARY, split) for i in range(n)]
    assert sorted(np.concatenate(rows)) == list(range(40))
    assert [len(r) for r in rows] == shard_sizes(n, BINARY, split) and min(map(len, rows)) >= 1


def test_dirichlet_skews_the_labels_for_a_small_alpha_only():
    y = np.repeat(np.arange(10), 500)

    def share(alpha):
        shards = [y[rows_of(i, 10, y, f"dirichlet({alpha})")] for i in range(10)]
        return np.mean([np.bincount(s).max() / len(s) for s in shards])

    assert share(1000) < 0.15 < 0.4 < share(0.1)


def test_dirichlet_shares_are_quantiles_of_gamma_over_their_sum():
    """At alpha = 1 of the exponential distribution; at a small alpha also where the quantiles underflow."""
    u = np.array([0.2, 0.5, 0.9])
    np.testing.assert_allclose(_shares(1.0, u), np.log(1 - u) / np.sum(np.log(1 - u)), rtol=1e-12)
    edge = 0.1 / scipy.special.gamma(1.01)  # whose quantile is 1e-100, about
    below, above = _shares(0.01, edge * np.array([0.99, 1.01]))
    assert below / above == pytest.approx((0.99 / 1.01) ** 100, rel=1e-9)


def test_a_worker_without_a_row_takes_the_last_one_of_the_largest_shard():
    rows = [rows_of(i, 2, np.zeros(10), "dirichlet(0.001)").tolist() for i in range(2)]
    assert sorted(rows, key=len) == [[9], [*range(9)]]


def test_problems_without_samples_have_no_shard_sizes():
    assert Quadratics(d=3).shard_sizes(2) is None


def spoiled(value):
    wrong = X.astype(float)
    wrong[5, 2] = value
    return wrong


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((spoiled(np.nan), BINARY), r"X\[5, 2\] is nan"),
        ((scipy.sparse.csr_array(spoiled(np.inf)), BINARY), r"X\[5, 2\] is inf"),
        ((X, BINARY[1:]), r"y has the shape \(39,\) and X has 40 rows"),
        ((X, np.where(BINARY, np.nan, 1)), r"y\[\d+\] is nan"),
        ((X[0], BINARY), r"X has the shape \(3,\)"),
        ((X + 1j, BINARY), "complex64"),
        ((X, Y), "3 label classes"),
    ],
)
def test_unusable_arrays_are_refused(data, said):
    with pytest.raises(DataError, match=said):
        Logistic(data=data, lam=0.1)


@pytest.mark.parametrize(
    ("split", "n", "said"),
    [
        (UNEVEN, 4, r"no row to 1 of the 4 workers \(3\)"),
        (UNEVEN, 2, "names worker 2"),
        (UNEVEN[1:], 3, "39 rows"),
        (-UNEVEN, 3, "split is of type int64"),
        (np.ma.array(UNEVEN, mask=UNEVEN == 1), 3, "split has a mask, which would be ignored"),
        ([[0], [0, 1]], 3, "split is ragged"),
        (UNEVEN.astype(float), 3, "split is of type float64"),
        (UNEVEN.astype(bool), 3, "split is of type bool"),
        (UNEVEN.astype(np.uint64) + np.uint64(2**63), 3, "split is of type uint64"),
        ("dirichlet(0)", 3, "alpha is a number"),
        ("dirichlet", 3, "dirichlet"),
    ],
)
def test_unusable_splits_are_refused(split, n, said):
    with pytest.raises(ConfigError, match=said):
        Logistic(data=(X, BINARY), lam=0.1, split=split).constants(n)


def test_a_split_is_an_array_of_any_library():
    plain = Logistic(data=(X, BINARY), lam=0.1, split=UNEVEN)
    for split in (UNEVEN.tolist(), UNEVEN.astype(">u2"), pd.Series(UNEVEN)):
        assert Logistic(data=(X, BINARY), lam=0.1, split=split) == plain
