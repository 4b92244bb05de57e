"""The dense methods besides GD and AGD: heavy ball, conjugate gradients and L-BFGS."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log, sqrt

import numpy as np
import pytest
import scipy.optimize

import mpicomp
from mpicomp import Descent, Logistic
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Identity
from mpicomp.keys import Key
from mpicomp.methods import CG, LBFGS, HeavyBall
from mpicomp.methods.base import Message
from mpicomp.methods.support.line_search import bracket, next_trial
from mpicomp.problems import LeastSquares, NonconvexLogistic, Quadratics
from tests.reference.cg import cg
from tests.reference.heavyball import heavyball
from tests.reference.lbfgs import lbfgs
from tests.support.trajectories import (
    HAND,
    PLACES,
    Entropy,
    assert_close,
    codec,
    every_place,
    gradients,
    mean_gradient,
    objective_value,
    resolved,
    rounding,
    squares,
    start,
    trajectory,
)

formats = pytest.mark.parametrize("values", ["f4", "f8"])
METHODS = [HeavyBall(), CG(), LBFGS()]


def travelled(vectors: list, values: str) -> np.ndarray:
    """The workers' mean as all ranks know it: rounded on the way up and once more on the way down."""
    through = codec(Identity(values), 0, len(vectors))
    mean = np.zeros_like(vectors[0])
    for v in vectors:
        mean += through(0, 0, v) * (1 / len(vectors))
    return through(0, 0, mean)


# --- heavy ball ---


@every_place
@formats
def test_heavy_ball_is_its_transcription(problem, n, values):
    grads = gradients(problem, n)
    loop = start(HeavyBall(gamma=0.2, values=values), problem, n)
    mu = problem.constants(n).mu
    assert loop.method.mu == mu
    wanted = heavyball(
        [lambda x: travelled([grad(x) for grad in grads], values)],
        problem.x0(),
        0.2,
        (1 - sqrt(0.2 * mu)) ** 2,
        60,
    )
    assert_close(trajectory(loop, 60), wanted, rounding(loop.method))


def test_heavy_ball_has_polyaks_rate():
    """On x'diag(L, .., μ)x/2 each coordinate falls as k ρ^k, ρ = (√L - √μ)/(√L + √μ)."""
    problem = squares(4, 6, seed=2)
    loop = start(HeavyBall(values="f8"), problem, 4)
    c, method = problem.constants(4), loop.method
    assert method.gamma == pytest.approx(4 / (sqrt(c.L) + sqrt(c.mu)) ** 2, rel=1e-15)
    rho = (sqrt(c.L) - sqrt(c.mu)) / (sqrt(c.L) + sqrt(c.mu))
    assert (1 - sqrt(method.gamma * method.mu)) ** 2 == pytest.approx(rho**2, rel=1e-12)
    errors = np.linalg.norm(np.array(trajectory(loop, 120)) - problem.x_star, axis=1)
    assert all(errors[k] <= 3 * (k + 1) * rho**k * errors[0] + 1e-13 for k in range(120))
    assert errors[60] >= (0.8 * rho) ** 60 * errors[0]  # and no faster, so that the bound means something


# --- conjugate gradients ---


@pytest.mark.parametrize(("problem", "n"), PLACES[1:], ids=["d13-n5", "d4-n9"])
@formats
def test_cg_is_its_transcription(problem, n, values):
    """Round 0 sends gradients, and each later round is one step."""
    grads, x0 = gradients(problem, n), problem.x0()
    loop = start(CG(values=values), problem, n)
    first = travelled([grad(x0) for grad in grads], values)
    wanted = cg(
        lambda p: travelled([grad(x0 + p) - grad(x0) for grad in grads], values), -first, x0, problem.d - 1
    )
    got = trajectory(loop, problem.d)
    assert np.array_equal(got[0], got[1])
    assert_close(got[1:], wanted, 1e-6 if values == "f4" else 1e-10)


def test_cg_ends_at_the_minimiser_with_conjugate_directions_and_stays():
    """In d steps, and in 2 if A has two eigenvalues."""
    problem = squares(4, 6, seed=3)
    loop = start(CG(values="f8"), problem, 4)
    directions = []
    for k in range(7):
        loop.step(k)
        directions.append(loop.replica.p)
    P, A = np.array(directions[:6]), problem.A.mean(axis=0)
    products = P @ A @ P.T
    sizes = np.sqrt(np.diag(products))
    assert np.abs(products / np.outer(sizes, sizes) - np.eye(6)).max() < 1e-8
    assert np.abs(loop.x - problem.x_star).max() < 1e-9 * np.abs(problem.x_star).max()
    for k in range(7, 40):
        loop.step(k)
    assert np.abs(loop.x - problem.x_star).max() < 1e-9 * np.abs(problem.x_star).max()

    two = replace(problem, A=np.broadcast_to(np.diag([1.0, 1, 1, 4, 4, 4]), (4, 6, 6)))
    loop = start(CG(values="f8"), two, 4)
    assert np.abs(trajectory(loop, 3)[3] - two.x_star).max() < 1e-12 * np.abs(two.x_star).max()


def test_cg_from_the_minimiser_stays_there():
    """Exact: p = 0."""
    problem = squares(2, 3, seed=4)
    at_rest = replace(problem, b=np.zeros((2, 3)), start=np.zeros(3))
    assert not np.any(trajectory(start(CG(), at_rest, 2), 5))


@formats
@pytest.mark.parametrize("n", [1, 2, 8])
@pytest.mark.parametrize("d", [2, 3, 4])
def test_cg_stays_at_the_minimiser_that_it_has_reached(d, n, values):
    """Within 200 rounds A_i p would be rounding alone, and p'Ap 0 or below.  L/μ is 10⁶."""
    problem = Quadratics(d=d)
    iterates = trajectory(start(CG(values=values), problem, n), 200)
    first, last = (np.linalg.norm(mean_gradient(problem, n, iterates[k])) for k in (0, -1))
    assert last <= (2e-4 if values == "f4" else 1e-9) * first
    assert np.array_equal(iterates[20], iterates[-1])


@pytest.mark.parametrize("seed", range(5))
def test_cg_goes_on_while_g_is_more_than_rounding(seed):
    """L/μ is 10³.  With the sum of all rounds' errors as the bound, |∇f| was four times as large."""
    draw = np.random.default_rng(seed)
    U = np.linalg.qr(draw.normal(size=(20, 20)))[0]
    A = np.array([U @ np.diag(np.logspace(-3, 0, 20)) @ U.T] * 4)
    problem = replace(squares(4, 20, seed=0), A=A, b=draw.normal(size=(4, 20)))
    iterates = trajectory(start(CG(values="f4"), problem, 4), 100)
    first, last = (np.linalg.norm(mean_gradient(problem, 4, iterates[k])) for k in (0, -1))
    assert last <= 2.1e-7 * first


@formats
def test_cg_stays_where_f_is_flat(values):
    """A has rank 2, and rounding has parts along which f is flat: no step follows them."""
    draw = np.random.default_rng(6)
    rows = draw.normal(size=(2, 8))
    A = rows[:, :, None] * rows[:, None, :]
    problem = replace(squares(2, 8, seed=6), A=A, b=A @ draw.normal(size=8))
    iterates = trajectory(start(CG(gamma=1.0, values=values), problem, 2), 100)
    first, last = (np.linalg.norm(mean_gradient(problem, 2, iterates[k])) for k in (0, -1))
    assert last <= 1e-6 * first
    assert np.array_equal(iterates[10], iterates[-1])


@formats
@pytest.mark.parametrize("seed", range(4))
def test_cg_stays_near_the_minimiser_of_a_run_before(seed, values):
    """From x* but for rounding, where |∇f(x⁰)| is no more than the rounding of gradients."""
    problem = squares(4, 6, seed)
    x = problem.x_star
    iterates = trajectory(start(CG(values=values), replace(problem, start=x), 4), 60)
    assert np.abs(iterates[-1] - x).max() <= (1e-6 if values == "f4" else 1e-14) * np.abs(x).max()
    assert np.array_equal(iterates[20], iterates[-1])


@pytest.mark.parametrize("unit", [1e-16, 1e-6, 1e6, 1e16])
def test_cg_finds_the_minimiser_in_any_unit_of_f(unit):
    """p has the unit of ∇f, so x⁰ + p may be x⁰ to the last bit, where x⁰ + s p is not."""
    problem = squares(4, 6, seed=3)
    scaled = replace(problem, A=unit * problem.A, b=unit * problem.b)
    x = trajectory(start(CG(values="f8"), scaled, 4), 40)[-1]
    assert np.abs(x - problem.x_star).max() <= 1e-13 * np.abs(problem.x_star).max()


@pytest.mark.parametrize("curvature", [0.0, -1.0])
def test_cg_refuses_a_direction_without_curvature(curvature):
    problem = squares(2, 3, seed=4)
    loop = start(CG(gamma=1.0, values="f8"), replace(problem, A=np.stack([curvature * np.eye(3)] * 2)), 2)
    loop.step(0)
    with pytest.raises(ConfigError, match=r"does not curve upwards \(p'Ap = (0|-\S+)\): .* Take LBFGS"):
        loop.step(1)


# --- L-BFGS ---


def evaluation(problem, n: int, values: str):
    """(x, y) -> (mean ∇f_i(y), mean f_i(y) - f_i(x)) as they travel, one entry after the others."""
    fs = [problem.objective(i, n) for i in range(n)]

    def evaluate(x, y):
        mean = travelled([np.append(f.grad(y), f.value(y) - f.value(x)) for f in fs], values)
        return mean[:-1], mean[-1]

    return evaluate


@every_place
@formats
@pytest.mark.parametrize("memory", [1, 3, 20])
def test_lbfgs_is_its_transcription(problem, n, values, memory):
    loop = start(LBFGS(memory=memory, values=values), problem, n)
    wanted = lbfgs(evaluation(problem, n, values), problem.x0(), 1.0, memory, 22)
    assert_close(trajectory(loop, 22), wanted, 1e-5 if values == "f4" else 1e-9)


@pytest.mark.parametrize("gamma", [1e-4, 100.0])
def test_lbfgs_searches_as_its_transcription_does(gamma):
    """With a first trial that is far too short or too long, most rounds are no steps."""
    loop = start(LBFGS(gamma=gamma, values="f8"), Entropy(), 4)
    got = trajectory(loop, 60)
    assert 3 < loop.replica.steps < 40
    assert_close(got, lbfgs(evaluation(Entropy(), 4, "f8"), Entropy().x0(), gamma, 20, 60), 1e-8)


@pytest.mark.parametrize("data", ["digits", "breast_cancer"])
def test_lbfgs_is_scipys_where_first_trials_fit(data):
    """L-BFGS-B has the same recursion, and strong Wolfe conditions in place of the weak ones."""
    problem, n = Logistic(data=data, lam=0.01), 4
    fs, points = [problem.objective(i, n) for i in range(n)], []

    def function(x):
        points.append(x.copy())
        return np.mean([f.value(x) for f in fs]), np.mean([f.grad(x) for f in fs], axis=0)

    scipy.optimize.minimize(
        function, problem.x0(), jac=True, method="L-BFGS-B", options={"maxcor": 20, "maxiter": 12, "ftol": 0}
    )
    loop = start(LBFGS(values="f8"), problem, n)
    assert len(points) >= 12
    for k, point in enumerate(points):
        assert np.allclose(loop.replica.y, point, rtol=1e-7, atol=1e-9), k
        loop.step(k)


def test_f_falls_by_what_the_line_search_promises():
    """Also where f is not convex: x moves by steps that satisfy both Wolfe conditions, or not at all."""
    problem, n = NonconvexLogistic(data="digits", lam=0.1), 5
    loop = start(LBFGS(values="f8"), problem, n)
    moved = 0
    for k in range(40):
        x, p, steps, t = loop.x.copy(), loop.replica.p.copy(), loop.replica.steps, loop.replica.t
        loop.step(k)
        if loop.replica.steps == steps:
            assert np.array_equal(loop.x, x)
            continue
        moved += 1
        slope = mean_gradient(problem, n, x) @ p
        assert slope < 0 and np.array_equal(loop.x, x + t * p)
        change = objective_value(problem, n, loop.x) - objective_value(problem, n, x)
        assert change <= 1e-3 * t * slope + 1e-15
        assert mean_gradient(problem, n, loop.x) @ p >= 0.9 * slope - 1e-15
    assert moved > 15
    assert np.sum(mean_gradient(problem, n, loop.x) ** 2) < 1e-12


@formats
def test_at_the_floor_of_rounding_pairs_are_dropped_and_f_no_longer_changes(values):
    """A search that cannot succeed ends after 20 trials."""
    problem = Quadratics(d=13, noise=0.5, lam=0.01)
    loop = start(LBFGS(values=values), problem, 5)
    best = objective_value(problem, 5, trajectory(loop, 100)[-1])
    dropped = False
    for k in range(100, 260):
        loop.step(k)
        assert loop.replica.trials < 20 and np.isfinite(loop.x).all()
        dropped |= loop.replica.pairs == 0
    floor = 1e-9 if values == "f4" else 1e-14
    assert dropped and best - problem.constants(5).f_star <= floor
    assert objective_value(problem, 5, loop.x) <= best + floor


def test_pairs_along_which_f_would_rise_are_dropped():
    """Exact.  H = -1 of a pair with s'z < 0, as only rounding makes: then p = -g, of length 1 at first."""
    method, key = LBFGS(), Key(0, 1, None, 1)
    r = method.replica(np.array([1.0]))
    r.S[0], r.Z[0], r.pairs = 1.0, -1.0, 1
    method.replica_step(r, Message(method.down.compress(np.array([2.0, 0.0]), key)), key)
    assert (r.pairs, r.p[0], r.slope, r.t, r.x[0], r.y[0]) == (0, -2.0, -4.0, 0.5, 1.0, 0.0)


def test_lbfgs_from_the_minimiser_stays_there():
    """Exact: g = 0, so p = 0 in every round."""
    at_rest = replace(squares(2, 3, seed=4), b=np.zeros((2, 3)), start=np.zeros(3))
    assert not np.any(trajectory(start(LBFGS(), at_rest, 2), 5))


# --- its line search ---

FUNCTIONS = {  # φ and φ', with φ'(0) < 0
    "parabola": (lambda t: (t - 1) ** 2 / 2, lambda t: t - 1),
    "quartic": (lambda t: (t - 3) ** 4, lambda t: 4 * (t - 3) ** 3),
    "log": (lambda t: t - log(1 + 1e4 * t), lambda t: 1 - 1e4 / (1 + 1e4 * t)),
    "hills": (lambda t: t * t / 200 - 1.2 * np.sin(t), lambda t: t / 100 - 1.2 * np.cos(t)),
    "kink": (lambda t: abs(t - 2) - t / 2, lambda t: (1 if t > 2 else -1) - 0.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("first", [1e-6, 0.9, 30.0, 1e8])
def test_a_search_ends_at_a_weak_wolfe_point(name, first):
    phi, derivative = FUNCTIONS[name]
    slope = derivative(0.0)
    (low, high), t = bracket(slope), first
    for _ in range(60):
        last, following = t, next_trial(np.array([t, phi(t) - phi(0), derivative(t)]), slope, low, high)
        assert (low[1] <= 1e-3 * low[0] * slope and low[2] < 0.9 * slope) or low[0] == 0
        assert high[0] == inf or high[1] > 1e-3 * high[0] * slope
        if following is None:
            break
        t = following
        assert low[0] < t < high[0]
    assert following is None
    assert phi(last) - phi(0) <= 1e-3 * last * slope and derivative(last) >= 0.9 * slope


def test_the_second_trial_on_a_parabola_is_its_minimiser():
    """From either side, but for growth by 2.1 to 5 times."""
    for first, second in ((30.0, 3.0), (4.0, 1.0), (0.05, 0.25)):
        (low, high) = bracket(-1.0)
        trial = np.array([first, ((first - 1) ** 2 - 1) / 2, first - 1])
        assert next_trial(trial, -1.0, low, high) == pytest.approx(second, rel=1e-12)


# --- what all three share ---


def test_theory_by_hand():
    quadratic = replace(HAND, quadratic=True)
    assert resolved(HeavyBall(), 12, 4, quadratic).gamma == pytest.approx(4 / (sqrt(3) + sqrt(0.1)) ** 2)
    assert resolved(HeavyBall(mu=0.3), 12, 4, quadratic).gamma == pytest.approx(
        4 / (sqrt(3) + sqrt(0.3)) ** 2
    )
    assert resolved(HeavyBall(gamma=0.2), 12, 4).mu == 0.1
    assert resolved(CG(), 12, 4, quadratic).gamma == 1 == resolved(LBFGS(gamma="theory"), 12, 4).gamma


@pytest.mark.parametrize(
    ("method", "c", "says"),
    [
        (HeavyBall(), HAND, "for convex quadratic f"),
        (HeavyBall(gamma=0.1), replace(HAND, mu=0.0), "needs a mu above 0, and this problem's is 0: give"),
        (HeavyBall(gamma=0.1), replace(HAND, mu=None), "mu above 0, and this problem's is not known: give"),
        (CG(), HAND, "for convex quadratic f"),
        (CG(), replace(HAND, quadratic=True, mu=None), "for convex quadratic f"),
        (LBFGS(gamma="theory"), replace(HAND, mu=None), "for convex f"),
    ],
    ids=repr,
)
def test_where_no_theorem_holds_theory_is_refused(method, c, says):
    with pytest.raises(ConfigError, match=says):
        resolved(method, 12, 4, c)


def test_problems_say_whether_they_are_quadratic():
    assert (
        Quadratics(d=5).constants(2).quadratic and LeastSquares(data="digits", lam=0.1).constants(2).quadratic
    )
    assert not Logistic(data="digits", lam=0.1).constants(2).quadratic


PROBLEM = Quadratics(d=30, noise=0.3, lam=0.1)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
@formats
def test_bytes_and_the_ranks_that_average(method, values):
    """d numbers each way, L-BFGS one more; in blocks the same iterates, by MPI_Allreduce nearly so."""
    method, entries = replace(method, values=values), 31 if isinstance(method, LBFGS) else 30
    sent = [20 * entries * (4 if values == "f4" else 8)] * 6
    root, sharded, summed = (
        mpicomp.run(method, PROBLEM, workers=6, rounds=20, **how)
        for how in ({}, {"server": "sharded", "blocks": 7}, {"server": "allreduce"})
    )
    assert root.iterates_sha256 == sharded.iterates_sha256
    assert np.allclose(root.x, summed.x, rtol=1e-3, atol=1e-4) and not np.allclose(
        root.x, PROBLEM.x0(), atol=0.01
    )
    for run in (root, sharded, summed):
        assert run.ledger.up.tolist() == run.ledger.down.tolist() == sent
        assert run.ledger.paper_bits_up == 6 * 20 * 32 * entries


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_in_a_loop_of_ones_own(method):
    """``Descent`` takes gradients at ``point``; L-BFGS needs f_i's values too, and refuses all else."""
    run = mpicomp.run(method, PROBLEM, workers=2, rounds=12)
    fs = {i: PROBLEM.objective(i, 2) for i in range(2)}
    with Descent(run.method, PROBLEM.x0(), workers=2) as descent:
        for _ in range(12):
            if isinstance(method, LBFGS):
                for what in (
                    {i: f.grad(descent.point) for i, f in fs.items()},
                    {i: f.grad for i, f in fs.items()},
                ):
                    with pytest.raises(
                        ConfigError, match=r"LBFGS asks for values f_i\(x\).*mpicomp\.Objective"
                    ):
                        descent.step(what)
                descent.step(fs)
            else:
                descent.step({i: f.grad(descent.point) for i, f in fs.items()})
        assert descent.x.tobytes() == run.x.tobytes()
