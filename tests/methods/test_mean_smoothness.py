"""EF21, EF21+ and EControl where the L_i differ by 1000 times: their steps take the mean of the L_i."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from mpicomp.compressors import TopK
from mpicomp.methods import EF21, EF21SGDM, EControl, EF21Plus
from tests.support.trajectories import (
    Squares,
    grad_norm_sq,
    mean_gradient,
    objective_value,
    resolved,
    rng,
    start,
    top,
)

N, D, C = 20, 50, TopK(5, values="f8")
SHRINK = sqrt(1 - 5 / 50)  # √(1-α)
THETA = 1 - SHRINK
Q = SHRINK / THETA
EVEN = np.geomspace(1, 1000, N)
ONE_IS_LINEAR = np.append(0.0, EVEN[1:])  # and its gradient is not 0 at the start


def unlike(L_i: np.ndarray) -> Squares:
    """Convex quadratics of which the i-th has the smoothness L_i, with unlike minima and unlike matrices;
    where one f_i is linear, the matrices are multiples of I, so that |∇f_i(x) - ∇f_i(y)| is L_i |x - y|."""
    draw = rng(3)
    factors = draw.normal(size=(N, D, D)) / sqrt(D)
    A = factors @ factors.transpose(0, 2, 1) if L_i.all() else np.broadcast_to(np.eye(D), (N, D, D))
    A = np.array([L * a / top(a) for L, a in zip(L_i, A, strict=True)])
    return Squares(A, draw.normal(size=(N, D)) * (1 + L_i[:, None]), draw.normal(size=D))


every_problem = pytest.mark.parametrize("L_i", [EVEN, ONE_IS_LINEAR], ids=["1..1000", "0, 1.4..1000"])


def test_the_step():
    """By hand: L_A = 164 where the root mean square is 311, so the step is nearly twice as large."""
    c = unlike(EVEN).constants(N)
    assert (c.L_mean, c.L_tilde) == (pytest.approx(163.9, rel=1e-3), pytest.approx(311.1, rel=1e-3))
    for method in (EF21(C), EF21Plus(C), EControl(C, eta=0)):
        gamma = resolved(method, D, N, c).gamma
        assert gamma == pytest.approx(1 / (c.L + Q * sum(c.L_i) / N))
        assert gamma > 1.8 / (c.L + Q * c.L_tilde)
    like = unlike(np.full(N, 7.0)).constants(N)
    assert like.L_mean == pytest.approx(like.L_tilde)
    assert resolved(EF21(C), D, N, like).gamma == pytest.approx(1 / (like.L + Q * like.L_tilde))


@every_problem
@pytest.mark.parametrize("begin", ["compressed", "gradient"])
@pytest.mark.parametrize("method", [EF21, EF21Plus])
def test_each_step_of_the_proof_holds_in_each_round(L_i, method, begin):
    """C is not random, so D_k is mean |e_i^k|.  Slack for rounding alone."""
    problem, slack = unlike(L_i), 1 + 1e-9
    c, loop = problem.constants(N), start(method(C, start=begin), problem, N)
    gamma, squares, xs, drifts, values = loop.method.gamma, [], [loop.x.copy()], [], []
    for k in range(60):
        loop.step(k)
        gradient = mean_gradient(problem, N, xs[-1])
        drifts.append(np.mean([sqrt(np.sum(w.e**2)) for w in loop.workers.values()]))
        squares.append(np.sum(gradient**2))
        values.append(objective_value(problem, N, xs[-1]) - c.f_star + gamma / (2 * THETA) * drifts[-1] ** 2)
        assert sqrt(np.sum((loop.replica.g - gradient) ** 2)) <= drifts[-1] * slack + 1e-9
        xs.append(loop.x.copy())
    for k, moved in enumerate(np.linalg.norm(np.diff(xs, axis=0), axis=1)[:-1]):
        assert drifts[k + 1] <= SHRINK * (drifts[k] + c.L_mean * moved) * slack
        bound = (1 - THETA) * drifts[k] ** 2 + THETA * (Q * c.L_mean * moved) ** 2
        assert drifts[k + 1] ** 2 <= bound * slack
        assert values[k + 1] <= (values[k] - gamma / 2 * squares[k]) * slack
    assert (drifts[0] > 1) == (begin == "compressed")
    assert np.mean(squares) <= 2 * values[0] / (gamma * len(squares))


def test_the_bound_on_the_error_is_attained():
    """With y = e_i + L_i δ for flat δ and e_i = Q L_i δ, TopK drops as much of y as it may, and all errors
    point the same way: D stays at Q mean L_i |δ|, and g is as far from ∇f."""
    A = EVEN[:, None, None] * np.eye(D)
    problem = Squares(A, np.zeros((N, D)), np.ones(D))
    loop = start(EF21(C, start="gradient"), problem, N)
    loop.step(0)
    delta = loop.x - problem.x0()
    for i, w in loop.workers.items():
        w.g = A[i] @ (problem.x0() - Q * delta)
    loop.replica.g = np.mean([w.g for w in loop.workers.values()], axis=0)
    gradient = mean_gradient(problem, N, loop.x)
    loop.step(1)
    wanted = Q * EVEN.mean() * sqrt(np.sum(delta**2))
    assert np.mean([sqrt(np.sum(w.e**2)) for w in loop.workers.values()]) == pytest.approx(wanted)
    assert sqrt(np.sum((loop.replica.g - gradient) ** 2)) == pytest.approx(wanted)


# Method, and the M of its proof over mean L_i, without L.
LARGEST = (1 - SHRINK) / (1 + SHRINK)
PROOFS = [
    (EF21(C, start="gradient"), Q),
    (EF21Plus(C, start="gradient"), Q),
    (EF21SGDM(C, eta=1.0), Q),
    (EControl(C), 2 * SHRINK / (1 - SHRINK)),
    (EControl(C, eta=LARGEST / 2), 2 * SHRINK / (1.5 * (1 - SHRINK))),
]


@every_problem
@pytest.mark.parametrize(("method", "M"), PROOFS, ids=repr)
def test_the_estimates_lag_behind_by_at_most_what_the_path_allows(L_i, method, M):
    """Up to every round, Σ |g - ∇f|² ≤ (M mean L_i)² Σ |x^{k+1} - x^k|², but for float32 at the start; and
    the bound on Σ |∇f|² that follows."""
    problem = unlike(L_i)
    c = problem.constants(N)
    gamma = 1 / (c.L + M * c.L_mean)
    loop = start(method.with_step(gamma), problem, N)
    first, lag, path, total = objective_value(problem, N, loop.x) - c.f_star, 0.0, 0.0, 0.0
    float32 = 1e-12 * np.mean([np.sum(f.grad(loop.x) ** 2) for f in loop.objectives.values()])
    for k in range(120):
        before, gradient = loop.x.copy(), mean_gradient(problem, N, loop.x)
        total += grad_norm_sq(problem, N, loop.x)
        loop.step(k)
        lag += np.sum((loop.replica.g - gradient) ** 2)
        assert lag <= (M * c.L_mean) ** 2 * path * (1 + 1e-9) + float32
        path += np.sum((loop.x - before) ** 2)
    assert total <= 2 * first / gamma
    assert lag > 1e-4 * (M * c.L_mean) ** 2 * path
    if method != EF21SGDM(C, eta=1.0):  # its theory is smaller
        assert resolved(method, D, N, c).gamma == pytest.approx(gamma)
