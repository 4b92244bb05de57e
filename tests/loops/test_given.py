"""What a loop of one's own gives for a step: arrays, functions of x, objectives."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mpicomp
from mpicomp import DCGD, EF21, GD, MARINA, Aggregator, ConfigError, Descent, Identity, RandK
from mpicomp.problems import LeastSquares
from tests.loops.test_aggregator import METHODS_HERE, PROBLEM, WORKERS, flat, gradients, objectives, tree

TWO_POINTS = {type(m): m for m in METHODS_HERE if m.needs_function and not m.needs_also}
BEYOND_GRADIENTS = {type(m): m for m in METHODS_HERE if m.needs_also}
ONE_POINT = {type(m): m for m in METHODS_HERE if not m.needs_function and not getattr(m, "batch", None)}


@pytest.mark.parametrize("method", ONE_POINT.values(), ids=str)
def test_arrays_will_do_where_one_gradient_is_asked_for(method):
    """The gradient at ``point``, as an array, gives the iterates that the objective itself gives."""
    one, two = (Descent(method, tree(PROBLEM.x0()), workers=WORKERS, seed=2) for _ in range(2))
    for _ in range(6):
        one.step(objectives(one))
        two.step({i: tree(g) for i, g in gradients(two, flat(two.point)).items()})
        assert flat(one.x).tobytes() == flat(two.x).tobytes()


@pytest.mark.parametrize("method", TWO_POINTS.values(), ids=str)
def test_an_array_is_refused_where_two_points_are_compared(method):
    method = mpicomp.run(method, PROBLEM, workers=WORKERS, rounds=1).method  # with numbers for "theory"
    descent = Descent(method, tree(PROBLEM.x0()), workers=WORKERS)
    with pytest.raises(ConfigError, match="several points: give a function of x"):
        descent.step(gradients(descent, flat(descent.point)))


@pytest.mark.parametrize("method", BEYOND_GRADIENTS.values(), ids=str)
def test_gradients_are_refused_where_values_or_matrices_are_asked_for(method):
    method = mpicomp.run(method, PROBLEM, workers=WORKERS, rounds=1).method
    descent = Descent(method, tree(PROBLEM.x0()), workers=WORKERS)
    said = rf"asks for {re.escape(method.needs_also)} as well as gradients: give an mpicomp\.Objective"
    for what in (gradients(descent, flat(descent.point)), dict.fromkeys(range(WORKERS), lambda x: x)):
        with pytest.raises(ConfigError, match=said):
            descent.step(what)


def test_a_function_of_x_is_an_objective_without_batches():
    method = mpicomp.VRMARINA(mpicomp.RandK(k=3), batch=None, gamma=0.01, p=0.3)
    one, two = (Aggregator(method, like=PROBLEM.x0(), workers=WORKERS) for _ in range(2))
    x = PROBLEM.x0()
    fs = objectives(one)
    for _ in range(6):
        g = one(fs, at=x)
        assert g.tobytes() == two({i: f.grad for i, f in fs.items()}, at=x).tobytes()
        x -= 0.01 * g
    with pytest.raises(ConfigError, match="needs the point of this step"):
        two({i: f.grad for i, f in fs.items()})


def test_an_objective_may_follow_an_array():
    """At the same point too, where the gradient that was given before would have been taken again."""
    agg = Aggregator(EF21(Identity("f8")), like=tree(PROBLEM.x0()), workers=WORKERS)
    fs, x = objectives(agg), PROBLEM.x0()
    agg(dict.fromkeys(range(WORKERS), tree(np.zeros_like(x))), at=tree(x))
    expected = np.mean([f.grad(x) for f in fs.values()], axis=0)
    np.testing.assert_allclose(flat(agg(fs, at=tree(x))), expected, rtol=1e-12)


def test_a_batch_may_be_a_fraction_of_an_objectives_samples():
    problem = LeastSquares((np.eye(12), np.arange(12.0)), lam=0.1)
    method = DCGD(RandK(k=3), gamma=0.1, batch=0.5)
    descent = Descent(method, problem.x0(), workers=3)
    fs = {i: problem.objective(i, 3) for i in descent.hosted}
    for _ in range(3):
        descent.step(fs)
    assert descent.x.tobytes() == mpicomp.run(method, problem, workers=3, rounds=3).x.tobytes()


@pytest.mark.parametrize("call", [lambda d: d.step(lambda x: x), lambda d: d.state()])
@pytest.mark.parametrize("method", [GD(gamma=0.5), MARINA(RandK(k=1), gamma=0.5, p=0.5)])
def test_a_gradient_function_that_calls_its_own_loop_is_refused(method, call):
    """The gradient was then of a point that the inner step had left, and the steps were of no method."""
    descent = Descent(method, np.full(4, 8.0))

    def reentrant(x):
        call(descent)
        return x

    with pytest.raises(ConfigError, match=r"a step of this Descent is under way.*between steps"):
        descent.step(reentrant)
    assert descent.steps == 0 and descent.x.tolist() == [8.0] * 4
    descent.step(lambda x: x)
    assert descent.x.tolist() == [4.0] * 4
