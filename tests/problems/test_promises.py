"""``check_problem``: the package's own problems pass, and each broken promise is named."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from zlib import crc32

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
from mpicomp.problems.asking import Asked, Point
from mpicomp.problems.differences import check_slopes

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


def test_a_network_with_kinks_passes_in_double_precision_too():
    """Between two slopes, differences agree on a third, at every step."""
    problem = MLP("digits", hidden=7, activation="relu")
    for seed in range(6):
        mpicomp.check_problem(problem, seed=seed, draws=30, x=problem.x0().astype(float))


def test_a_kink_is_no_error():
    """There differences agree on 1/2, and grad is one of the slopes, 0 and 1; a wrong one is wrong nearby."""

    class Hinge(Objective):
        slope = 1.0

        def value(self, x):
            return float(np.maximum(x[0], 0) - 0.1 * x[1])

        def grad(self, x):
            return np.array([self.slope * (x[0] > 0), -0.1])

    at = Point("0", np.zeros(2))
    check_slopes(Asked("Hinge", Hinge()), at, rng(0))
    Hinge.slope = -1.0
    with pytest.raises(ConfigError, match="Hinge, at 0: the slope along"):
        for seed in range(8):  # half of the points nearby are where it is 0
            check_slopes(Asked("Hinge", Hinge()), at, rng(seed))


def test_a_gradient_that_differences_confirm_roughly_passes():
    """The shortest step, 6e-8, is a quarter of the scale of f: it gives a slope that is 1 % off."""

    class Wave(Objective):
        factor = 1.0

        def value(self, x):
            return float(np.sin(4e6 * x[0]) / 4e6)

        def grad(self, x):
            return np.array([self.factor * np.cos(4e6 * x[0])])

    at = Point("0", np.zeros(1))
    check_slopes(Asked("Wave", Wave()), at, rng(0))
    Wave.factor = 2.0
    with pytest.raises(ConfigError, match=r"Wave, at 0: the slope .* do not agree on one"):
        check_slopes(Asked("Wave", Wave()), at, rng(0))


def test_the_check_leaves_numpy_s_global_generator_alone():
    before = np.random.get_state()[1].copy()
    mpicomp.check_problem(Quadratics(d=5))
    assert np.array_equal(before, np.random.get_state()[1])


D, M = 6, 10  # the dimension, and samples of a worker


class Ridge(Objective):
    """(1/2m) |A x - b|² + |x|²/20, with batches."""

    samples = M

    def __init__(self, A, b):
        self.A, self.b = A, b

    def value(self, x):
        return float(np.sum((self.A @ x - self.b) ** 2) / (2 * M) + np.sum(x * x) / 20)

    def grad(self, x):
        return self.A.T @ (self.A @ x - self.b) / M + x / 10

    def batch_grad(self, x, b, stream):
        rows = stream.permutation(M, 0, b)
        return self.A[rows].T @ (self.A[rows] @ x - self.b[rows]) / b + x / 10


def hessian(f):
    return f.A.T @ f.A / M + np.eye(D) / 10


@dataclass(frozen=True)
class Mine(Problem):
    """Worker i has an objective of the class ``kinds[i]``, the last one from there on."""

    kinds: tuple[type, ...] = (Ridge,)
    changed: dict = field(default_factory=dict)

    def dimension(self):
        return D

    def objective(self, i, n):
        draw = rng(i)
        kind = self.kinds[min(i, len(self.kinds) - 1)]
        return kind(draw.normal(size=(M, D)), draw.normal(size=M))

    def constants(self, n):
        fs = [self.objective(i, n) for i in range(n)]
        H = np.array([hessian(f) for f in fs])
        mean, c = H.mean(axis=0), np.mean([f.A.T @ f.b / M for f in fs], axis=0)
        eigenvalues = np.linalg.eigvalsh(mean)
        x = np.linalg.solve(mean, c)
        true = Constants(
            L=eigenvalues[-1],
            L_i=np.linalg.eigvalsh(H)[:, -1],
            L_plus=np.sqrt(np.linalg.eigvalsh(np.mean(H @ H, axis=0))[-1]),
            L_pm=np.sqrt(np.linalg.eigvalsh(np.mean((H - mean) @ (H - mean), axis=0))[-1]),
            mu=eigenvalues[0],
            convex=True,
            quadratic=True,
            f_star=np.mean([f.value(x) for f in fs]),
        )
        return replace(true, **{name: change(getattr(true, name)) for name, change in self.changed.items()})


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


class Bumpy(Ridge):
    """Neither quadratic nor convex."""

    samples = None
    batch_grad = Objective.batch_grad

    def value(self, x):
        return super().value(x) + float(np.sum(np.cos(3 * x)))

    def grad(self, x):
        return super().grad(x) - 3 * np.sin(3 * x)


class SmallMatrix(Ridge):
    def smoothness_matrix(self):
        return hessian(self) / 2


class RightMatrix(Ridge):
    def smoothness_matrix(self):
        return hessian(self)


class FlatMatrix(Ridge):
    def smoothness_matrix(self):
        return np.diagonal(hessian(self))


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
        (SmallMatrix, r"f_i\(x\+v\) - f_i\(x\) - .* and the smoothness matrix allows"),
        (FlatMatrix, r"smoothness_matrix gave the shape \(6,\); allowed: \(6, 6\)"),
        (Bumpy, r"L_i = |quadratic says 0|convex says 0 or above"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_broken_promise_is_named(kind, words, seed):
    """Of the third worker alone."""
    with pytest.raises(ConfigError, match="^Mine: worker 2 of 4, .*(?:" + words + ")"):
        mpicomp.check_problem(Mine((Ridge, Ridge, kind, Ridge)), seed=seed)


def test_a_smoothness_matrix_that_holds_passes():
    mpicomp.check_problem(Mine((RightMatrix,)))


def unknown(value):
    return None


def halved(value):
    return np.asarray(value) / 2


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"L": halved, "mu": unknown}, r"Mine: f, at x0: \|∇f\(x\+v\) - ∇f\(x\)\| is \S+ \|v\| .*, and L = "),
        ({"L_i": halved}, r"Mine: worker 0 of 4, at x0: \|∇f_i\(x\+v\) - ∇f_i\(x\)\| is .*, and L_i = "),
        ({"L_plus": halved}, "Mine: f, at x0: .* and L_plus = "),
        ({"L_pm": halved}, "Mine: f, at x0: .* and L_pm = "),
        ({"mu": lambda mu: 2 * mu}, r"Mine: f, at x0: <∇f\(x\+v\) - .*; mu = \S+ says \S+ at least"),
        (
            {"f_star": lambda f: f + 1e-3 * abs(f)},
            r"Mine: f is \S+ at evaluation \d+ of a .* above it",
        ),
        ({"L": lambda L: -L}, r"Constants\(L=-\S+\); allowed: a number above 0"),
        (
            {"sigma": lambda _: 0.01},
            r"E \|batch_grad\(x, 1\) - grad\(x\)\|² is \S+ .* sigma = 0.01 allows 0.0001",
        ),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_constant_that_does_not_hold_is_named(changed, words, seed):
    with pytest.raises(ConfigError, match=words):
        mpicomp.check_problem(Mine(changed=changed), seed=seed)


NOTHING = dict.fromkeys(("L_i", "L_plus", "L_pm", "mu", "f_star", "convex", "quadratic"), unknown)


@pytest.mark.parametrize(
    ("name", "words"), [("convex", "convex says 0 or above"), ("quadratic", "quadratic says 0")]
)
def test_a_property_that_does_not_hold_is_named(name, words):
    changed = NOTHING | {"L": lambda L: 100.0, name: lambda _: True}
    with pytest.raises(ConfigError, match=f"Mine: worker 0 of 4, at x0: .*; {words}"):
        mpicomp.check_problem(Mine((Bumpy,), changed))


@pytest.mark.parametrize("name", ["L", "L_i", "L_plus"])
def test_a_constant_of_the_package_s_problems_that_is_halved_is_found(name, monkeypatch):
    """Of ridge regression, whose constants are attained."""
    plain = LeastSquares.constants

    def changed(self, n):
        found = plain(self, n)
        return replace(found, **{name: halved(getattr(found, name))})

    monkeypatch.setattr(LeastSquares, "constants", changed)
    for seed in range(3):
        with pytest.raises(ConfigError, match=f" and {name} = "):
            mpicomp.check_problem(LeastSquares((X, TARGETS), lam=0.01), seed=seed)


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


def test_a_value_that_is_not_smooth_is_said_to_be_so():
    class Rough(Ridge):
        def value(self, x):
            return super().value(x) + 1e-11 * crc32(x.tobytes())

    with pytest.raises(
        ConfigError, match=r"do not agree on one: \S+ \(step .* Either value is not smooth, or"
    ):
        mpicomp.check_problem(Mine((Rough,)))


def test_a_descent_that_leaves_the_finite_values_is_no_error():
    asked = []

    class Walled(Objective):
        def value(self, x):
            asked.append(x[0])
            return float(np.sum((x - 100) ** 2) / 2) if x.max() < 50 else np.inf

        def grad(self, x):
            return x - 100

    class Distant(Problem):
        def dimension(self):
            return 2

        def objective(self, i, n):
            return Walled()

        def constants(self, n):
            return Constants(L=1.0, f_star=0.0)

    mpicomp.check_problem(Distant())
    assert max(asked) > 50


@pytest.mark.parametrize("seed", range(4))
def test_differences_that_rounding_drowns_do_not_count(seed):
    """A value of 3e8 has steps of 6e-8, as long as the shortest step of the differences."""

    class High(Ridge):
        samples = None
        batch_grad = Objective.batch_grad

        def value(self, x):
            return super().value(x) + 3e8

    class HighDoubled(High):
        def grad(self, x):
            return 2 * super().grad(x)

    mpicomp.check_problem(Mine((High,)), seed=seed)
    with pytest.raises(ConfigError, match=r"by grad, and \S+ by differences of value \(step 6.1e-0[56]\)"):
        mpicomp.check_problem(Mine((HighDoubled,)), seed=seed)


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


def test_single_precision_within_is_allowed_for():
    """x0 and the gradient are doubles, and the computation is not."""

    class Within(Ridge):
        samples = None
        batch_grad = Objective.batch_grad

        def value(self, x):
            return float(super().value(x.astype("f4")))

        def grad(self, x):
            A, b, x = (a.astype("f4") for a in (self.A, self.b, x))
            return (A.T @ (A @ x - b) / np.float32(M) + x / np.float32(10)).astype(float)

    class WithinDoubled(Within):
        def grad(self, x):
            return 2 * super().grad(x)

    for seed in range(5):
        mpicomp.check_problem(Mine((Within,)), seed=seed)
        with pytest.raises(ConfigError, match="the slope along the gradient that it gave is"):
            mpicomp.check_problem(Mine((WithinDoubled,)), seed=seed)


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
