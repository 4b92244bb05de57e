"""Problems: gradients against differences of values, constants against dense matrices."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import eigvalsh
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from mpicomp import EF21SGDM, GD, MARINA
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import PermK, RandK, TopK
from mpicomp.data import SPLITS, load_dataset, rows_of
from mpicomp.problems import (
    MLP,
    PROBLEMS,
    LeastSquares,
    Logistic,
    Noisy,
    NonconvexGLM,
    NonconvexLogistic,
    Quadratics,
    Saddle,
    Softmax,
)
from mpicomp.problems.scalars import BOUNDED, LOGISTIC, SIGMOID_SQUARED, SQUARE
from mpicomp.problems.smoothness import DENSE, spectrum, top_eigenvalue
from mpicomp.text.config import parse_method, parse_problem, to_text

rng = np.random.default_rng  # one per test, so that no test depends on the others


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MPICOMP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def small(tmp_path):
    """37 rows in 6 dimensions, of very different sizes from class to class."""
    X = rng(1).normal(size=(37, 6)) * rng(2).random((37, 6)).round()
    y = np.where(rng(3).random(37) < 0.3, 1, -1)
    X[y > 0] *= 3
    lines = (
        f"{s} " + " ".join(f"{k}:{v!r}" for k, v in enumerate(row.tolist(), 1))
        for s, row in zip(y, X, strict=True)
    )
    path = tmp_path / "small"
    path.write_text("\n".join(lines))
    return str(path)


def linear_problems(data: str, split: str = "sorted") -> list:
    return [
        Logistic(data, lam=0.01, split=split),
        Logistic(data, lam=0.0, split=split),
        NonconvexLogistic(data, lam=0.2, split=split),
        NonconvexGLM(data, lam=0.0, split=split),
        NonconvexGLM(data, lam=0.05, split=split),
    ]


def assert_gradient(objective, x: np.ndarray) -> None:
    """Central differences in random directions: error h^2 |f'''| / 6 plus rounding eps |f| / h."""
    h = 1e-5
    for direction in rng(7).normal(size=(5, len(x))):
        direction /= np.sqrt(np.sum(direction**2))
        slope = (objective.value(x + h * direction) - objective.value(x - h * direction)) / (2 * h)
        exact = np.sum(objective.grad(x) * direction)
        assert abs(slope - exact) < 1e-7 * (1 + abs(exact) + abs(objective.value(x)))


# Scalars


@pytest.mark.parametrize("phi", [LOGISTIC, SIGMOID_SQUARED, SQUARE, BOUNDED])
def test_scalars_have_the_slope_and_curvature_they_state(phi):
    t = np.linspace(-12, 12, 240_001)
    h = t[1] - t[0]
    assert np.abs(np.gradient(phi.value(t), h)[1:-1] - phi.slope(t)[1:-1]).max() < 1e-8
    curvature = np.abs(np.gradient(phi.slope(t), h))[1:-1].max()
    assert phi.curvature * (1 - 1e-6) < curvature < phi.curvature * (1 + 1e-9)  # attained, not exceeded


def test_the_curvature_of_the_squared_sigmoid_is_the_published_one():
    """MARINA's code has 0.15405, the digits of 0.1540586 cut off."""
    assert SIGMOID_SQUARED.curvature == pytest.approx(0.15405, abs=1e-5)


@pytest.mark.parametrize(("phi", "left"), [(LOGISTIC, 1e4), (SIGMOID_SQUARED, 1.0)])
def test_extreme_margins_neither_overflow_nor_cancel(phi, left):
    t = np.array([-1e4, 40.0, 1e4, -40.0])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        value, slope = phi.value(t), phi.slope(t)
    assert value[0] == left
    assert value[1] == pytest.approx(np.exp(-40) if phi is LOGISTIC else np.exp(-80), rel=1e-12, abs=0)
    assert slope[1] == pytest.approx(-np.exp(-40) if phi is LOGISTIC else -2 * np.exp(-80), rel=1e-12, abs=0)
    assert value[2] == 0
    assert slope[0] == (-1 if phi is LOGISTIC else 0)
    assert slope[2] == 0
    assert slope[3] == (-1 if phi is LOGISTIC else pytest.approx(-2 * np.exp(-40), rel=1e-12, abs=0))


# Linear models


@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize("scale", [0.0, 0.3, 3.0])
def test_linear_gradients(small, which, scale):
    problem = linear_problems(small)[which]
    for i in range(3):
        assert_gradient(problem.objective(i, 3), scale * rng(i).normal(size=6))


def assert_together(objective, x: np.ndarray) -> None:
    """``value_and_grad`` gives the bits of ``value`` and ``grad``."""
    value, g = objective.value_and_grad(x)
    assert value == objective.value(x) and g.tobytes() == objective.grad(x).tobytes()


@pytest.mark.parametrize("which", range(5))
def test_value_and_gradient_together_have_the_bits_of_each(small, which):
    assert_together(linear_problems(small)[which].objective(0, 3), rng(0).normal(size=6))


def test_a_subclass_of_an_objective_is_asked_for_its_own_value_and_gradient(small):
    """Not for those that the class above it computes together."""
    f = Logistic(small, lam=0.1).objective(0, 3)
    x = rng(0).normal(size=6)

    class Doubled(type(f)):
        def value(self, x):
            return 2 * super().value(x)

    class Reversed(type(f)):
        def grad(self, x):
            return -super().grad(x)

    class Clipping:  # no ``Objective``: a class to mix in
        def grad(self, x):
            return np.clip(super().grad(x), -1e-3, 1e-3)

    class Clipped(Clipping, type(f)):
        pass

    kinds = Doubled, Reversed, Clipped
    doubled, reversed_, clipped = (kind(f.X, f.y, f.phi, f.lam, f.rho) for kind in kinds)
    assert doubled.value_and_grad(x)[0] == 2 * f.value(x)
    assert np.array_equal(reversed_.value_and_grad(x)[1], -f.grad(x))
    assert np.abs(clipped.value_and_grad(x)[1]).max() == 1e-3


def test_logistic_value_and_gradient_by_hand(small):
    data, x, lam = load_dataset(small), rng(5).normal(size=6), 0.3
    f = Logistic(small, lam=lam, split="contiguous").objective(1, 2)
    A, y = data.X.toarray()[19:], data.y[19:]
    assert f.value(x) == pytest.approx(np.mean(np.log1p(np.exp(-y * (A @ x)))) + lam / 2 * x @ x, rel=1e-14)
    by_hand = np.mean((-y / (1 + np.exp(y * (A @ x))))[:, None] * A, axis=0) + lam * x
    assert f.grad(x) == pytest.approx(by_hand, rel=1e-13)


@pytest.mark.parametrize("split", ["contiguous", "shuffled", "sorted"])
def test_a_worker_holds_its_rows_of_the_full_matrix(small, split):
    data, problem = load_dataset(small), Logistic(small, lam=0.1, split=split)
    for i in range(5):
        rows, f = rows_of(i, 5, data.y, split), problem.objective(i, 5)
        assert np.array_equal(f.X.toarray(), data.X.toarray()[rows])
        assert np.array_equal(f.y, data.y[rows])


def test_a_gradient_is_fresh_and_reproducible():
    f = Logistic("digits", lam=0.1).objective(2, 8)
    x = rng(0).normal(size=64)
    first, kept = f.grad(x), x.copy()
    bits = first.tobytes()
    first[:] = np.nan
    assert f.grad(x).tobytes() == bits
    assert np.array_equal(x, kept)
    with threadpool_limits(2):
        assert f.grad(x).tobytes() == bits


def hessian_bounds(problem, n: int) -> list[np.ndarray]:
    """B_i = c X_i'X_i / m_i, dense."""
    data = load_dataset(problem.data)
    shards = [data.X.toarray()[rows_of(i, n, data.y, problem.split)] for i in range(n)]
    return [problem.phi.curvature * A.T @ A / len(A) for A in shards]


@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize(("split", "n"), [("sorted", 4), ("shuffled", 5), ("contiguous", 37), ("sorted", 1)])
def test_linear_constants_equal_the_dense_formulas(small, which, split, n):
    problem = linear_problems(small, split)[which]
    found, B = problem.constants(n), hessian_bounds(problem, n)
    r = problem.lam * problem.rho.curvature
    tops = [eigvalsh(b)[-1] for b in B]
    L0 = eigvalsh(np.mean(B, axis=0))[-1]
    p = eigvalsh(np.mean([top * b for top, b in zip(tops, B, strict=True)], axis=0))[-1]
    assert found.L_i == pytest.approx([top + r for top in tops], rel=1e-12)
    expected = L0 + r, np.sqrt(p + 2 * r * L0 + r**2), np.sqrt(p) if n > 1 else 0
    assert (found.L, found.L_plus, found.L_pm) == pytest.approx(expected, rel=1e-12)
    assert found.L <= found.L_plus * (1 + 1e-12) <= found.L_tilde * (1 + 2e-12) <= found.L_max * (1 + 3e-12)
    assert found.L <= found.L_mean * (1 + 1e-12) <= found.L_tilde * (1 + 2e-12)
    assert found.mu == (problem.lam if isinstance(problem, Logistic) else None)


@pytest.mark.parametrize("which", range(5))
def test_linear_constants_bound_every_gradient_difference(small, which):
    """And are not vacuous: near the origin, where the logistic curvature peaks, L is attained within 1 %."""
    n, problem = 4, linear_problems(small)[which]
    found, fs = problem.constants(n), [problem.objective(i, n) for i in range(n)]
    _, vectors = np.linalg.eigh(np.mean(hessian_bounds(problem, n), axis=0))
    pairs = [(a, b) for scale in (1e-3, 1, 10) for a, b in scale * rng(4).normal(size=(200, 2, 6))]
    top = 1e-3 * vectors[:, -1]
    best = 0.0
    for x, y in [*pairs, (top, -top)]:
        D = np.array([f.grad(x) - f.grad(y) for f in fs])
        step, mean = np.sum((x - y) ** 2), D.mean(axis=0)
        assert np.all(np.sum(D**2, axis=1) <= np.square(found.L_i) * step * (1 + 1e-9))
        assert np.sum(mean**2) <= found.L**2 * step * (1 + 1e-9)
        assert np.mean(np.sum(D**2, axis=1)) <= found.L_plus**2 * step * (1 + 1e-9)
        assert np.mean(np.sum(D**2, axis=1)) - np.sum(mean**2) <= found.L_pm**2 * step * (1 + 1e-9)
        best = max(best, np.sqrt(np.sum(mean**2) / step) / found.L)
    if problem.phi is LOGISTIC:
        assert best > 0.99


def step(problem, Q, n: int) -> float:
    """MARINA's by theory, with Q."""
    return MARINA(Q, p=1 / n).resolve(lambda: problem.constants(n), problem.dimension(), n).gamma


def test_theory_gives_permk_nothing_for_linear_models(small):
    """The bound on L_±² is that on L_+² less the penalty's part, 2 r (L - r) + r².  Without a penalty
    L_± = L_+, and MARINA has it with B = 1 for PermK, and with ω/n = 2/3 for RandK(d/n)."""
    n, d = 3, 6
    for problem in linear_problems(small):
        c, r = problem.constants(n), problem.lam * problem.rho.curvature
        assert c.L_pm**2 == pytest.approx(c.L_plus**2 - 2 * r * (c.L - r) - r**2, rel=1e-12)
        if problem.lam == 0:
            assert c.L_pm == c.L_plus
            assert step(problem, PermK(), n) < step(problem, RandK(d // n), n)
    alike = Quadratics(d=d, noise=0.0, lam=0.1)  # L_± = 0, so that PermK has GD's step
    assert step(alike, PermK(), n) == pytest.approx(1 / alike.constants(n).L)
    assert step(alike, PermK(), n) > 1.5 * step(alike, RandK(d // n), n)


@pytest.mark.parametrize("cond", [1.5, 1e3, 1e8])
def test_the_condition_number_asked_for_is_met(small, cond):
    for n in (1, 3):
        problem = Logistic(small, cond=cond, split="sorted")
        found = problem.constants(n)
        assert found.L / found.mu == pytest.approx(cond, rel=1e-12)
        L0 = eigvalsh(np.mean(hessian_bounds(problem, n), axis=0))[-1]
        assert problem.objective(0, n).lam == pytest.approx(L0 / (cond - 1), rel=1e-12, abs=0)


def test_strong_convexity(small):
    f, x, y = Logistic(small, lam=0.25).objective(0, 1), *rng(0).normal(size=(2, 6)) * 20
    assert np.sum((f.grad(x) - f.grad(y)) * (x - y)) >= 0.25 * np.sum((x - y) ** 2)


def test_constants_have_the_same_bits_from_the_cache_and_for_any_thread_count(tmp_path, monkeypatch):
    found = []
    for threads, folder in [(1, "one"), (2, "two"), (2, "two")]:
        monkeypatch.setenv("MPICOMP_CACHE", str(tmp_path / folder))
        spectrum.cache_clear()
        with threadpool_limits(threads):
            found.append(Logistic("digits", lam=1e-3).constants(6))
        assert len(list((tmp_path / folder / "constants").iterdir())) == 1
    assert found[0] == found[1] == found[2]


def test_constants_of_different_shards_do_not_meet_in_the_cache(small, tmp_path, monkeypatch):
    cases = [(split, n) for split in SPLITS for n in (2, 3)]
    together = [Logistic(small, lam=0.1, split=split).constants(n) for split, n in cases]
    for k, (split, n) in enumerate(cases):
        monkeypatch.setenv("MPICOMP_CACHE", str(tmp_path / f"cache {k}"))
        assert Logistic(small, lam=0.1, split=split).constants(n) == together[k]
    assert len({found.L_i for found in together}) == len(cases)


def test_the_largest_eigenvalue_of_wide_tall_and_large_matrices():
    for shape in [(30, 5), (5, 30), (DENSE + 200, DENSE + 100)]:
        X = csr_array(rng(0).random(shape) * (rng(1).random(shape) < 0.05))
        expected = np.linalg.svd(X.toarray(), compute_uv=False)[0] ** 2
        assert top_eigenvalue(X) == pytest.approx(expected, rel=1e-12)
        assert top_eigenvalue(X) == top_eigenvalue(X)


# Quadratics


def dense_quadratics(problem: Quadratics, n: int) -> tuple[np.ndarray, np.ndarray]:
    """A_i and b_i, read off the objectives: column k of A_i is grad f_i(e_k) - grad f_i(0)."""
    d = problem.d
    fs = [problem.objective(i, n) for i in range(n)]
    b = np.array([-f.grad(np.zeros(d)) for f in fs])
    A = np.array([[f.grad(e) for e in np.eye(d)] for f in fs]) + b[:, None, :]
    return A, b


CASES = [
    (2, 0.8, 1e-2, 4),
    (25, 0.0, 1e-3, 3),
    (25, 0.1, 1e-6, 7),
    (25, 3.0, 1e-2, 5),
    (8, 50.0, 1.0, 2),
]


@pytest.mark.parametrize(("d", "noise", "lam", "n"), CASES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_quadratic_constants_equal_dense_ones(d, noise, lam, n, seed):
    problem = Quadratics(d=d, noise=noise, lam=lam, seed=seed)
    A, b = dense_quadratics(problem, n)
    found, mean = problem.constants(n), A.mean(axis=0)
    squares = np.mean([a @ a for a in A], axis=0)
    scale = found.L_max
    assert eigvalsh(mean)[0] == pytest.approx(lam, abs=1e-14 * scale)
    assert found.mu == lam
    assert abs(found.L - eigvalsh(mean)[-1]) < 1e-13 * scale
    assert found.L_i == pytest.approx([np.abs(eigvalsh(a)).max() for a in A], rel=1e-12)
    assert found.L_plus**2 == pytest.approx(eigvalsh(squares)[-1], rel=1e-12)
    assert found.L_pm**2 == pytest.approx(eigvalsh(squares - mean @ mean)[-1], abs=1e-13 * scale**2)
    x = np.linalg.solve(mean, b.mean(axis=0))
    conditioning = found.L_max / lam * np.finfo(float).eps
    assert found.f_star == pytest.approx(-b.mean(axis=0) @ x / 2, rel=1e-12 + 100 * conditioning)
    value = np.mean([problem.objective(i, n).value(x) for i in range(n)])
    assert value == pytest.approx(found.f_star, rel=1e-12 + 100 * conditioning)


@pytest.mark.parametrize(("noise", "convex"), [(0.0, True), (0.1, True), (0.8, False)])
def test_quadratics_say_whether_every_one_of_them_is_convex(noise, convex):
    """f always is; by the eigenvalues of the matrices."""
    problem, n = Quadratics(d=20, noise=noise, lam=1e-2), 8
    fs = [problem.objective(i, n) for i in range(n)]
    zero = np.zeros(20)
    lowest = min(eigvalsh([f.grad(e) - f.grad(zero) for e in np.eye(20)])[0] for f in fs)
    found = problem.constants(n)
    assert found.convex == (lowest >= 0) == convex
    assert found.mu == 1e-2


def test_problems_say_whether_every_sample_is_convex(small):
    for problem in (*linear_problems(small), Softmax("digits"), LeastSquares(small, lam=0.1)):
        assert problem.constants(3).convex == isinstance(problem, Logistic | Softmax | LeastSquares)
    assert Softmax("digits", lam=0.1, penalty="bounded").constants(3).convex is False
    assert Saddle().constants(3).convex is False
    assert Noisy(Logistic(small, lam=0.1), 1.0).constants(3).convex is True


def test_quadratics_are_as_the_paper_defines_them():
    problem, n = Quadratics(d=5, noise=0.3), 4
    A, b = dense_quadratics(problem, n)
    T = 2 * np.eye(5) - np.eye(5, k=1) - np.eye(5, k=-1)
    nu = -4 * A[:, 0, 1]
    for i in range(n):
        shift = A[i] - nu[i] / 4 * T
        assert shift == pytest.approx(shift[0, 0] * np.eye(5), abs=1e-15)
        assert shift[0, 0] == pytest.approx(A[0][0, 0] - nu[0] / 2)  # one c for all
        assert np.all(b[i][1:] == 0)
    assert problem.x0().tolist() == [np.sqrt(5), 0, 0, 0, 0]


def test_noise_is_standard_normal_and_depends_on_the_worker_only():
    n = 4000
    q, b = Quadratics(noise=0.1)._coefficients(n)
    for draws in ((4 * q - 1) / 0.1, (b / q + 1) / 0.1):  # tolerances of 5 standard errors
        assert abs(draws.mean()) < 5 / np.sqrt(n)
        assert abs(draws.var() - 1) < 5 * np.sqrt(2 / n)
    few, _ = Quadratics(noise=0.1)._coefficients(3)
    assert np.array_equal(few, q[:3])
    assert not np.array_equal(few, Quadratics(noise=0.1, seed=1)._coefficients(3)[0])


def test_without_noise_all_workers_are_alike():
    problem = Quadratics(d=30, noise=0.0)
    assert problem.objective(0, 5) == problem.objective(4, 5)
    assert problem.constants(5).L_pm == 0


def test_quadratic_gradients():
    for i in range(3):
        assert_gradient(Quadratics(d=40, noise=0.5, lam=0.1).objective(i, 3), rng(i).normal(size=40))


def test_a_million_coordinates_need_no_matrix():
    problem = Quadratics(d=10**6, noise=0.1, lam=1e-6)
    found, f = problem.constants(2), problem.objective(0, 2)
    assert abs(found.L - 4 * np.mean(problem._coefficients(2)[0])) < 1e-5
    # A sine is an eigenvector of T; its eigenvalue 1e-11 is lost in the shift, so A x = (1e-6 + ..) x.
    x = np.sin(np.pi * np.arange(1, 10**6 + 1) / (10**6 + 1))
    assert np.abs(f.grad(x)[1:] - f.grad(0 * x)[1:] - 1e-6 * x[1:]).max() < 1e-10


# The edges


def test_problems_are_their_repr_and_stand_in_the_table(small):
    for problem in (*linear_problems(small), Logistic(small, cond=10.0), Quadratics(d=7, seed=3)):
        assert eval(repr(problem)) == problem
        assert type(problem) in PROBLEMS.values()
        assert problem.x0().shape == (problem.dimension(),)


def test_impossible_parameters_are_refused(small):
    with pytest.raises(ConfigError, match=r"either lam.* or cond"):
        Logistic(small)
    with pytest.raises(ConfigError, match=r"either lam.* or cond"):
        Logistic(small, lam=0.1, cond=10)
    for cond in (1, 0.5, np.inf, np.nan):
        with pytest.raises(ConfigError, match="finite and above 1"):
            Logistic(small, cond=cond)
    for lam in (-0.1, np.inf, np.nan, 10**400):
        for problem in linear_problems(small):
            with pytest.raises(ConfigError, match="finite and at least 0"):
                replace(problem, lam=lam)
    for problem in linear_problems(small):
        with pytest.raises(ConfigError, match="Did you mean 'shuffled'"):
            replace(problem, split="shufled")
        with pytest.raises(ConfigError, match="37 rows among 38 workers"):
            problem.objective(0, 38)
        with pytest.raises(ConfigError, match="37 rows among 38 workers"):
            problem.constants(38)
    for wrong in ({"d": 1}, {"noise": -1}, {"noise": np.nan}, {"lam": 0}, {"lam": -1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Quadratics(**wrong)
    with pytest.raises(ConfigError, match="at least 1 worker"):
        Quadratics().constants(0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Quadratics(d="10"), "d = '10'; allowed: an integer from 2 upwards"),
        (lambda: Quadratics(d=10.0), "d = 10.0; allowed: an integer from 2 upwards"),
        (lambda: Quadratics(noise=None), "noise = None: it is a number, finite and at least 0"),
        (lambda: Quadratics(lam=Decimal("0.1")), "the smallest eigenvalue is a number, finite and above 0"),
        (lambda: Logistic("digits", "0.1"), "lam = '0.1': the weight of the penalty is a number"),
        (lambda: Logistic("digits", True), "lam = True: the weight of the penalty is a number"),
        (lambda: Logistic("digits", lam=np.ones(2)), "the weight of the penalty is a number"),
        (lambda: Logistic("digits", cond="10"), "cond = '10': a condition number is a number, finite"),
        (lambda: NonconvexGLM("digits", lam=None), "lam = None: the weight of the penalty is a number"),
        (lambda: Softmax("digits", penalty=None), "unknown penalty 'None'"),
        (lambda: Softmax("digits", penalty=["ridge"]), "unknown penalty"),
        (lambda: Softmax("digits", penalty=Path("ridge")), "unknown penalty 'ridge'"),
        (lambda: MLP("digits", activation=None), "unknown activation 'None'"),
        (lambda: MLP("digits", hidden="3"), "hidden = '3'; allowed: an integer from 1 upwards"),
        (lambda: Noisy(Quadratics(d=5), "1"), "sigma = '1': the noise is a number, finite"),
        (lambda: Saddle(d=4.0), "d = 4.0; allowed: an integer from 2 upwards"),
    ],
)  # fmt: skip
def test_a_parameter_of_another_type_is_refused_by_name(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


def test_numbers_and_texts_of_numpy_are_those_of_python():
    """Their texts, such as np.int64(10), are read by nothing: a record of them could not be continued."""
    given = Noisy(Quadratics(d=np.int64(10), noise=np.float32(0.5), lam=Fraction(1, 4)), np.float64(0.1))
    assert repr(given) == repr(Noisy(Quadratics(d=10, noise=0.5, lam=0.25), 0.1))
    assert parse_problem(to_text(given)) == given
    assert MLP("digits", hidden=np.uint8(3)).dimension() == MLP("digits", hidden=3).dimension()
    swept = [EF21SGDM(TopK(k=k), eta=eta) for k in np.arange(1, 3) for eta in np.array([0.1, 1.0])]
    assert repr(swept) == repr([EF21SGDM(TopK(k=k), eta=eta) for k in (1, 2) for eta in (0.1, 1.0)])
    assert repr(GD(gamma=np.float32(0.5))) == repr(GD(gamma=0.5)) and parse_method(repr(swept[0])) == swept[0]
    named = EF21SGDM(TopK(2, values=np.str_("f2")), gamma=np.str_("theory*2"))  # as of np.array(["f2", "f4"])
    assert repr(named) == repr(EF21SGDM(TopK(2, values="f2"), gamma="theory*2"))
    assert repr(Softmax(np.str_("digits"), penalty=np.str_("ridge"))) == repr(Softmax("digits"))
    for wrong in (np.bool_(True), np.float64("nan"), np.array([0.1])):
        with pytest.raises(ConfigError, match="gamma="):
            GD(gamma=wrong)
