"""Runs of problems of one's own, good and bad: what diverges, and what is no divergence."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest

import mpicomp
from mpicomp import (
    CG,
    DCGD,
    EF14,
    EF21,
    EF21LMO,
    GD,
    LBFGS,
    PPMARINA,
    Dion,
    EF21Muon,
    LoCoDL,
    OneBitAdam,
    PerturbedSGD,
    PowerSGD,
    TwoDirection,
)
from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.compressors import Lazy, TopK
from mpicomp.problems import Objective, Problem, Saddle
from mpicomp.runtime.rows import read_rows
from tests.support.method_cases import METHOD_CASES
from tests.support.running import every_method, run

# --- problems ---


@dataclass(frozen=True)
class Ball(Problem):
    """f_i(x) = |x - i|^2 / 2."""

    d: int = 3

    def dimension(self):
        return self.d

    def objective(self, i, n):
        return Bowl(i)


@dataclass(frozen=True)
class Bowl(Objective):
    centre: float

    def value(self, x):
        return float(np.sum((x - self.centre) ** 2) / 2)

    def grad(self, x):
        return x - self.centre

    def smoothness_matrix(self):
        return np.eye(3)


@dataclass(frozen=True)
class Steep(Ball):
    """f_i(x) = 10^10 |x - 1|^2 / 2."""

    def objective(self, i, n):
        return SteepBowl(1.0)


class SteepBowl(Bowl):
    def value(self, x):
        return 1e10 * super().value(x)

    def grad(self, x):
        return 1e10 * super().grad(x)


@dataclass(frozen=True)
class Broken(Problem):
    """Worker 2's gradient has one bad entry once x has left 0."""

    bad: float = np.nan

    def dimension(self):
        return 3

    def objective(self, i, n):
        return BrokenBowl(float(i + 1), self.bad if i == 2 else 0.0)


@dataclass(frozen=True)
class BrokenBowl(Bowl):
    bad: float

    def grad(self, x):
        g = super().grad(x)
        g[1] = self.bad if x.any() and self.bad else g[1]
        return g


@dataclass(frozen=True)
class Far(Ball):
    """Gradients that fit float32; twice such a gradient does not."""

    def objective(self, i, n):
        return Bowl(3e38)


# --- runs of them ---


def with_step(method, value, **more):
    """The method with its step size, whatever that is called, given as a number."""
    return replace(method, **{method.step_name: value}, **more)


def test_a_problem_of_ones_own(tmp_path):
    """Dimension and objectives are enough where gamma is a number."""
    result = run(GD(0.5, values="f8"), Ball(), rounds=60, out=tmp_path / "run")
    assert np.allclose(result.x, 1.5, atol=1e-14)
    assert result.rows[-1].f == pytest.approx(np.mean((np.arange(4) - 1.5) ** 2) * 3 / 2)
    with pytest.raises(ConfigError, match=r"Ball gives no constants.*gamma"):
        run(GD(), Ball())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@every_method
def test_a_gradient_that_is_not_finite_names_worker_and_round(method, bad, tmp_path):
    """Refused before it is compressed, so no memory takes it in."""
    # Round 0 of TwoDirection, PowerSGD and Dion does not move x, and worker 2 sits out PPMARINA's round 1.
    # That of LoCoDL has more than one local step.
    leaves = 2 if isinstance(method, TwoDirection | PowerSGD | Dion | PPMARINA) else 1
    leaves -= isinstance(method, LoCoDL)
    leaves += method.setup_rounds
    step = method.step_name
    method = replace(method, **dict.fromkeys(method.theory_parameters, 0.1))  # the step is one of them
    with pytest.raises(DivergedError, match=rf"^round {leaves}: worker 2: .*not finite.*{step}=0\.1"):
        run(method, Broken(bad), every=10, out=tmp_path / "run")
    assert [row.round for row in read_rows(tmp_path / "run" / "rows.csv")] == [0]


@pytest.mark.parametrize("method", [GD(0.1), EF21(TopK(2), 0.1)], ids=lambda m: type(m).__name__)
def test_a_bad_gradient_in_an_observation_is_a_divergence(method):
    with pytest.raises(DivergedError, match=r"gamma=0\.1"):
        run(method, Broken(np.inf), every=1)


def test_leaving_a_stationary_start_is_no_divergence():
    """There all gradients are 0, and any other is infinitely many times larger."""
    method = PerturbedSGD(TopK(2), eta=0.02, r=30.0, I_reset=50, R=10.0)
    rows = mpicomp.run(method, Saddle(d=4, curvature=100.0), workers=2, rounds=20, every=1).rows
    assert rows[0].grad_norm_sq == 0 and max(row.grad_norm_sq for row in rows) > 1


# CG and LBFGS search for their steps, and those of the others do not grow with the gradient.
OF_OTHER_STEPS = CG | LBFGS | Dion | OneBitAdam | EF21LMO | EF21Muon
BY_STEPS = [c.method for c in METHOD_CASES if not isinstance(c.method, OF_OTHER_STEPS)]


def test_a_resumed_run_compares_its_gradients_with_those_of_its_start(tmp_path):
    """There |∇f|² is 3e20; in all rows it is far above the growth that is allowed from 1."""
    method, options = GD(gamma=1e-11), {"every": 1, "out": tmp_path}
    run(method, Steep(), rounds=2, **options)
    resumed = run(method, Steep(), rounds=4, resume=True, **options)
    whole = run(method, Steep(), rounds=4, every=1)
    assert [row.f for row in resumed.rows] == [row.f for row in whole.rows]


@pytest.mark.parametrize("method", BY_STEPS, ids=lambda m: type(m).__name__)
def test_divergence_names_the_step_and_keeps_the_record(method, tmp_path):
    """Stopped at the first row whose squared gradient norm is 10^12 times the first one."""
    step, value = method.step_name, 50
    method = with_step(method, value)
    if isinstance(method, TwoDirection):  # an inverse step; and mu > 0 would tame it
        value, method = 0.01, with_step(method, 0.01, mu=0)
    with pytest.raises(DivergedError, match=rf"diverged.*{step}={value}"):
        run(method, rounds=400, every=2, out=tmp_path / "run")
    rows = read_rows(tmp_path / "run" / "rows.csv")
    assert len(rows) >= 2
    assert rows[-1].grad_norm_sq > 1e12 * rows[0].grad_norm_sq or not np.isfinite(rows[-1].f)
    assert all(row.grad_norm_sq <= 1e12 * rows[0].grad_norm_sq for row in rows[:-1])


@pytest.mark.parametrize("values", ["f4", "f8"])
def test_divergence_between_rows_is_found_too(values):
    """Whatever overflows first, a value on the wire or the gradient: an error, and no warning from numpy."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DivergedError, match=r"round \d+: worker 0: .*gamma=50"):
            run(GD(50.0, values=values), rounds=5000, every=5000)


def test_a_mean_that_does_not_fit_the_wire_comes_with_the_same_advice():
    """Met by the server when it rounds the broadcast, and by no worker."""
    with pytest.raises(DivergedError, match=r"'f4'.*gamma=1e-40"):
        run(DCGD(Lazy(0.5), gamma=1e-40, down=mpicomp.Lossless("f4")), Far(), rounds=20, every=1)


def test_an_unexpected_error_is_not_dressed_up():
    """A defect in a problem keeps its own exception."""

    class Faulty(Ball):
        def objective(self, i, n):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        run(GD(0.1), Faulty())


def test_a_problem_without_coordinates_is_refused():
    with pytest.raises(ConfigError, match="dimension 0; allowed: an integer, 1 and above"):
        run(GD(0.1), Ball(d=0), rounds=3)


@pytest.mark.parametrize("size", [1e-40, 1e-200])  # below floats of 32 bits; with squares below 64
def test_numbers_that_vanish_are_no_error_where_the_program_raises_at_each(size):
    asked = {"workers": 1, "rounds": 5, "x0": np.full(3, size)}
    with np.errstate(all="raise"):
        ended = mpicomp.run(GD(gamma=0.5), Ball(), **asked)
        kept = mpicomp.run(EF14(TopK(k=1), gamma=0.5), Ball(), **asked)
    if size == 1e-40:
        np.testing.assert_allclose(ended.x, 1e-40 / 32, rtol=1e-3)
    else:
        assert (kept.x == size).all() and kept.rows[-1].x_norm == 0
