"""``check_problem`` refutes constants that do not hold at the points that it tries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mpicomp
from mpicomp import Constants, Problem
from mpicomp.base.errors import ConfigError
from mpicomp.problems import LeastSquares, Objective
from tests.support.ridge import Bumpy, Mine, Ridge, hessian


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
        (SmallMatrix, r"f_i\(x\+v\) - f_i\(x\) - .* and the smoothness matrix allows"),
        (FlatMatrix, r"smoothness_matrix gave the shape \(6,\); allowed: \(6, 6\)"),
        (Bumpy, r"L_i = |quadratic says 0|convex says 0 or above"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_worker_s_constant_that_does_not_hold_is_named(kind, words, seed):
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
    plain, draw = LeastSquares.constants, np.random.default_rng(1)
    data = draw.normal(size=(60, 7)), draw.normal(size=60)

    def changed(self, n):
        found = plain(self, n)
        return replace(found, **{name: halved(getattr(found, name))})

    monkeypatch.setattr(LeastSquares, "constants", changed)
    for seed in range(3):
        with pytest.raises(ConfigError, match=f" and {name} = "):
            mpicomp.check_problem(LeastSquares(data, lam=0.01), seed=seed)


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
