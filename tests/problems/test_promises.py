"""``check_problem``: the package's own problems pass, and each broken promise is named."""

from __future__ import annotations

import numpy as np
import pytest

import mpicomp
from mpicomp import Constants, Problem
from mpicomp.base.errors import ConfigError
from mpicomp.problems import (
    MLP,
    PROBLEMS,
    Attacked,
    Autoencoder,
    LeastSquares,
    Logistic,
    Noisy,
    NonconvexGLM,
    NonconvexLogistic,
    Objective,
    Quadratics,
    Saddle,
    Softmax,
)
from tests.support.ridge import D, M, Mine, Ridge

rng = np.random.default_rng
X, LABELS, TARGETS = (
    rng(1).normal(size=(60, 7)),
    np.where(rng(2).random(60) < 0.4, 1, -1),
    rng(3).normal(size=60),
)
DATA = X, LABELS
IMAGES = rng(4).integers(0, 256, (8, 5, 6)).astype(np.uint8)
IMAGES[0] = 0  # whose pixels put x0 at a kink of the network

ALL = [
    Quadratics(d=20),
    Quadratics(d=30, noise=2.0, lam=0.1),
    Saddle(d=5, noise=0.3),
    Logistic(DATA, lam=0.01),
    Logistic("breast_cancer", lam=1e-3),
    NonconvexLogistic(DATA, lam=0.1),
    NonconvexGLM(DATA, lam=0.1),
    LeastSquares((X, TARGETS), cond=100.0),
    LeastSquares(DATA, lam=0.0),
    Softmax("digits", lam=0.01),
    Softmax("digits", lam=0.1, penalty="bounded", split="sorted"),
    MLP("digits", hidden=5),
    MLP("digits", hidden=7, activation="relu"),
    Autoencoder("digits", r=3, lam=0.2),
    Noisy(Quadratics(d=10), 1.0),
    Noisy(Logistic(DATA, lam=0.01), 100.0),
    Attacked(Quadratics(d=10, lam=0.1), 1),
    Attacked(Logistic(DATA, lam=0.01), 1, "alie"),
    PROBLEMS["local_images"](IMAGES, horizon=2, hidden=4),
    PROBLEMS["full_images"](IMAGES, horizon=2, hidden=4),
]


def test_all_problems_of_the_package_are_here():
    assert {type(problem) for problem in ALL} == {*PROBLEMS.values()}


@pytest.mark.parametrize("problem", ALL, ids=lambda problem: type(problem).__name__)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_package_s_problems_keep_their_promises(problem, seed):
    mpicomp.check_problem(problem, seed=seed)


def test_the_check_leaves_numpy_s_global_generator_alone():
    before = np.random.get_state()[1].copy()
    mpicomp.check_problem(Quadratics(d=5))
    assert np.array_equal(before, np.random.get_state()[1])


def test_a_problem_of_one_s_own_keeps_its_promises():
    for seed in range(5):
        mpicomp.check_problem(Mine(), seed=seed)
    mpicomp.check_problem(Mine(), workers=1)
    mpicomp.check_problem(Mine(), x=np.full(D, 100.0), seed=3)


class Negative(Ridge):
    def grad(self, x):
        return -super().grad(x)


class Doubled(Ridge):
    def grad(self, x):
        return 2 * super().grad(x)


class OfTheSum(Ridge):
    def grad(self, x):
        return self.A.T @ (self.A @ x - self.b) + x / 10


class Unpenalised(Ridge):
    def grad(self, x):
        return super().grad(x) - x / 10


class OneEntryWrong(Ridge):
    def grad(self, x):
        g = super().grad(x)
        g[2] *= 1.01
        return g


class Shrinking(Ridge):
    def grad(self, x):
        x *= 0.5
        return super().grad(x)


class ShrinkingPastTheFlag(Ridge):
    def grad(self, x):
        raw = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_double * D).from_address(x.ctypes.data))
        raw *= 0.5
        return super().grad(x)


class Remembering(Ridge):
    """Momentum, say: the gradient depends on the calls before."""

    seen = 0.0

    def grad(self, x):
        self.seen = 0.5 * self.seen + super().grad(x)
        return self.seen


class Counting(Ridge):
    calls = 0

    def value(self, x):
        self.calls += 1
        return super().value(x) + self.calls


class DrawnAtTheStart(Ridge):
    def __init__(self, A, b):
        super().__init__(A, b + np.random.default_rng().normal())


class Random(Ridge):
    def grad(self, x):
        return super().grad(x) + 1e-9 * np.random.default_rng().normal(size=D)


class OneArray(Ridge):
    def grad(self, x):
        self.kept = getattr(self, "kept", np.empty(D))
        self.kept[:] = super().grad(x)
        return self.kept


class Column(Ridge):
    def grad(self, x):
        return super().grad(x)[:, None]


class Single(Ridge):
    def grad(self, x):
        return super().grad(x).astype("f4")


class Masked(Ridge):
    def grad(self, x):
        return np.ma.array(super().grad(x))  # with a mask of nothing: a run refuses it too


class Nowhere(Ridge):
    def grad(self, x):
        g = super().grad(x)
        g[1] = np.nan
        return g


class Unbounded(Ridge):
    def value(self, x):
        return float("inf")


class AVector(Ridge):
    def value(self, x):
        return np.array([super().value(x)])


class AList(Ridge):
    def grad(self, x):
        return super().grad(x).tolist()


class OtherTogether(Ridge):
    def value_and_grad(self, x):
        return self.value(x), self.grad(x) * (1 + 1e-12)


class OneTogether(Ridge):
    def value_and_grad(self, x):
        return self.value(x)


class SumOfBatch(Ridge):
    def batch_grad(self, x, b, stream):
        return b * super().batch_grad(x, b, stream)


class BatchOfTheFirst(Ridge):
    def batch_grad(self, x, b, stream):
        return self.A[:b].T @ (self.A[:b] @ x - self.b[:b]) / b + x / 10


class BatchWithoutPenalty(Ridge):
    def batch_grad(self, x, b, stream):
        return super().batch_grad(x, b, stream) - x / 10 - 1.0


class BatchOfItsOwn(Ridge):
    def batch_grad(self, x, b, stream):
        rows = np.random.default_rng().permutation(M)[:b]
        return self.A[rows].T @ (self.A[rows] @ x - self.b[rows]) / b + x / 10


class BatchAColumn(Ridge):
    def batch_grad(self, x, b, stream):
        return super().batch_grad(x, b, stream)[:, None]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            Negative,
            r"along the gradient that it gave is (\S+) by grad, and -\1 by differences of value \(step",
        ),
        (Doubled, r"the slope along the gradient that it gave is \S+ by grad, and \S+ by differences"),
        (OfTheSum, "the slope along the gradient that it gave is"),
        (Unpenalised, "the slope along"),
        (OneEntryWrong, "the slope along"),
        (Shrinking, "at x0: grad writes into x, .*; write into a copy"),
        (ShrinkingPastTheFlag, "from x0: grad writes into x, .*; write into a copy"),
        (
            Remembering,
            r"at x0: grad is \S+ from a first one of length \S+ when asked again; allowed: the same",
        ),
        (Counting, r"at x0: value is \S+, and \S+ when asked again; allowed: the same bits"),
        (
            DrawnAtTheStart,
            r"at x0: value is \S+, and \S+ of an objective that was made in another order",
        ),
        (Random, r"at x0: grad is \S+e-09 from a first one .* when asked again"),
        (OneArray, "at x0: grad gave the same array twice; return a new one each time"),
        (Column, r"at x0: grad gave the shape \(6, 1\); allowed: \(6,\)"),
        (Single, "at x0: grad gave float32 for an x of float64; allowed: float64"),
        (Masked, "at x0: grad's gradient has a mask, which would be ignored"),
        (Nowhere, "at x0: grad is not finite in 1 of its 6 coordinates"),
        (Unbounded, "at x0: value gave inf; allowed: a finite number"),
        (AVector, r"at x0: value gave ndarray of shape \(1,\); allowed: one real number"),
        (AList, r"at x0: grad gave \[.*; allowed: an array of numpy"),
        (OtherTogether, r"at x0: grad is \S+e-13 from a first one .* by value_and_grad"),
        (OneTogether, "at x0: value_and_grad gave float; allowed: the value and the gradient"),
        (SumOfBatch, r"the mean of 100 batches of 5 is [45]\.\d+ times grad along grad; allowed: 1 ± "),
        (BatchOfTheFirst, r"the mean of 100 batches of 5 is"),
        (BatchWithoutPenalty, r"the mean of 100 batches of 5 is"),
        (BatchOfItsOwn, r"two batches of 5 from one stream give gradients .* draw from the stream alone"),
        (BatchAColumn, r"batch_grad gave the shape \(6, 1\)"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_broken_promise_is_named(kind, words, seed):
    """Of the third worker alone."""
    with pytest.raises(ConfigError, match="^Mine: worker 2 of 4, .*(?:" + words + ")"):
        mpicomp.check_problem(Mine((Ridge, Ridge, kind, Ridge)), seed=seed)


def test_a_state_that_the_objectives_share_is_found():
    """The gradient of a worker depends on which objective was made last."""

    class Shared(Ridge):
        def __init__(self, A, b):
            Shared.now = A
            super().__init__(A, b)

        def value(self, x):
            return float(np.sum(Shared.now @ x)) + super().value(x)

    with pytest.raises(ConfigError, match=r"Mine: worker 0 of 4, at .*: value is .* when asked again"):
        mpicomp.check_problem(Mine((Shared,)))


def test_of_many_workers_the_first_and_the_last_are_asked():
    asked = set()

    class Noted(Mine):
        def objective(self, i, n):
            asked.add(i)
            return super().objective(i, n)

        def constants(self, n):
            return Constants(L=1e-9)  # of the mean of all, which is not asked

    mpicomp.check_problem(Noted(), workers=30)
    assert asked == {0, 29}
    with pytest.raises(ConfigError, match="L = 1e-09"):
        mpicomp.check_problem(Noted(), workers=8)


def test_a_problem_without_constants_and_batches_passes():
    class Bare(Problem):
        def dimension(self):
            return 3

        def objective(self, i, n):
            return Bowl()

    class Bowl(Objective):
        def value(self, x):
            return np.float32(np.sum(x * x))  # a real number of numpy, in single precision

        def grad(self, x):
            return 2 * x

    mpicomp.check_problem(Bare())


class Start(Mine):
    start: object = None

    def x0(self):
        return self.start() if callable(self.start) else self.start


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (np.zeros(3), r"Start\.x0\(\) is of shape \(3,\), type float64; allowed: an array of shape \(6,\)"),
        (np.zeros(6, int), r"Start\.x0\(\) is of shape \(6,\), type int64"),
        ([0.0] * 6, r"Start\.x0\(\) is of \[0\.0, .*; allowed: an array"),
        (np.full(6, np.nan), r"Start\.x0\(\) is not finite in 6 of its 6 coordinates"),
        (
            lambda: np.random.default_rng().normal(size=6),
            r"Start\.x0\(\) gives two points, \S+ apart, in two calls",
        ),
    ],
)
def test_a_start_that_is_none_is_refused(start, words, monkeypatch):
    monkeypatch.setattr(Start, "start", staticmethod(start) if callable(start) else start)
    with pytest.raises(ConfigError, match=words):
        mpicomp.check_problem(Start())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"problem": 3}, "problem=3; allowed: an object of a class derived from Problem"),
        ({"problem": Quadratics}, "problem=<class .*; allowed: an object of a class"),
        ({"workers": 0}, "workers=0; allowed: an integer from 1"),
        ({"seed": -1}, "seed=-1; allowed: an integer from 0"),
        ({"draws": 29}, "draws=29; allowed: an integer from 30"),
        ({"x": np.zeros(2)}, r"x is of shape \(2,\), type float64; allowed: an array of shape \(6,\)"),
    ],
)
def test_bad_parameters_are_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        mpicomp.check_problem(**{"problem": Mine()} | given)
