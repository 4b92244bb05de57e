"""``check_problem`` compares gradients with differences: kinks, waves, rounding and single precision."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.problems import MLP, Objective
from mpicomp.problems.checked import Checked, Point
from mpicomp.problems.differences import check_slopes
from tests.support.ridge import M, Mine, Ridge

rng = np.random.default_rng


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
    check_slopes(Checked("Hinge", Hinge()), at, rng(0))
    Hinge.slope = -1.0
    with pytest.raises(ConfigError, match="Hinge, at 0: the slope along"):
        for seed in range(8):  # half of the points nearby are where it is 0
            check_slopes(Checked("Hinge", Hinge()), at, rng(seed))


def test_a_gradient_that_differences_confirm_roughly_passes():
    """The shortest step, 6e-8, is a quarter of the scale of f: it gives a slope that is 1 % off."""

    class Wave(Objective):
        factor = 1.0

        def value(self, x):
            return float(np.sin(4e6 * x[0]) / 4e6)

        def grad(self, x):
            return np.array([self.factor * np.cos(4e6 * x[0])])

    at = Point("0", np.zeros(1))
    check_slopes(Checked("Wave", Wave()), at, rng(0))
    Wave.factor = 2.0
    with pytest.raises(ConfigError, match=r"Wave, at 0: the slope .* do not agree on one"):
        check_slopes(Checked("Wave", Wave()), at, rng(0))


def test_a_value_that_is_not_smooth_is_said_to_be_so():
    class Rough(Ridge):
        def value(self, x):
            return super().value(x) + 1e-11 * crc32(x.tobytes())

    with pytest.raises(
        ConfigError, match=r"do not agree on one: \S+ \(step .* Either value is not smooth, or"
    ):
        mpicomp.check_problem(Mine((Rough,)))


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


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_function_that_is_flat_near_x0_is_taken_for_single_precision_there_alone(factor):
    """0 does not tell in which precision it was computed; a gradient 1 % off passes in single precision."""

    class Flat(Ridge):
        samples = None
        batch_grad = Objective.batch_grad

        def value(self, x):
            return float(np.sum(np.maximum(x - 0.02, 0) ** 2) / 2)

        def grad(self, x):
            return factor * np.maximum(x - 0.02, 0)

    class Alone(Mine):
        constants = mpicomp.Problem.constants

    if factor == 1:
        mpicomp.check_problem(Alone((Flat,)))
    else:
        with pytest.raises(ConfigError, match="the slope along"):
            mpicomp.check_problem(Alone((Flat,)))
