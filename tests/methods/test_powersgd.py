"""PowerSGD of one matrix.  Tolerances are those of test_transcriptions.py; "exact" is bit for bit.

Correspondence of rounds.  Step t is our rounds 2t and 2t+1, and its first Q is drawn with the key of round 0.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import (
    RandK,
    RankR,
)
from mpicomp.keys import Key
from mpicomp.methods import EF14, EF21, PowerSGD
from mpicomp.problems import Noisy, Problem, Quadratics
from tests.reference.gd import gd
from tests.reference.powersgd import powersgd
from tests.support.trajectories import (
    ROUNDS,
    Entropy,
    Squares,
    assert_close,
    grad_norm_sq,
    gradients,
    integers,
    mean_gradient,
    on_batches,
    on_everything,
    squares,
    start,
    trajectory,
)


def first(r: int, rows: int, d: int, seed: int, n: int) -> np.ndarray:
    return Key(seed, 0, None, n).shared("powersgd").normals(d // rows * r).reshape(-1, r)


SHAPES = [(1, 3), (2, 3), (1, 4), (2, 6), (1, 1), (3, 12)]


@pytest.mark.parametrize(("r", "rows"), SHAPES)
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_powersgd_is_its_transcription(r, rows, momentum):
    problem, n = Entropy(), 4
    method = PowerSGD(r, rows, gamma=0.3 - 0.5 * momentum, values="f8", momentum=momentum)
    assert_powersgd(method, problem, n, on_everything(problem, n))


def test_powersgd_is_its_transcription_on_batches():
    problem, n = Noisy(Quadratics(d=20, noise=0.5, lam=0.01), 0.5), 5
    method = PowerSGD(2, 5, gamma=0.3, values="f8", batch=4)
    assert_powersgd(method, problem, n, on_batches(problem, n, 4, seed=22, rounds_a_step=2))


def assert_powersgd(method: PowerSGD, problem: Problem, n: int, grads: list) -> None:
    """x and e_i after every step; in between, x has not moved, and no residual is reported."""
    loop = start(method, problem, n, seed=22)
    r = loop.replica.Q.size // (problem.dimension() // method.rows)
    Q = first(r, method.rows, problem.dimension(), 22, n)
    wanted, errors = powersgd(grads, problem.x0(), method.gamma, method.rows, Q, ROUNDS // 2, method.momentum)
    iterates = [loop.x.copy()]
    for t in range(ROUNDS // 2):
        loop.step(2 * t)
        assert np.array_equal(loop.x, iterates[-1])
        assert all(method.residual(w) is None for w in loop.workers.values())
        loop.step(2 * t + 1)
        iterates.append(loop.x.copy())
        if t < 10:  # later the mean M_i is much smaller than they are, and P far less exact than x
            for w, e in zip(loop.workers.values(), errors[t + 1], strict=True):
                np.testing.assert_allclose(method.residual(w), e.ravel(), rtol=0, atol=1e-12)
    assert_close(iterates, wanted, 1e-12)


@pytest.mark.parametrize(("r", "rows"), [(3, 3), (3, 4), (9, 4), (1, 1), (1, 12), (2, 6)])
def test_powersgd_of_full_rank_is_gd(r, rows):
    """To rounding: P P' is the identity where r is the number of rows, and P spans the range of the mean
    matrix where it is that of its columns."""
    problem, n = Entropy(), 4
    iterates = trajectory(start(PowerSGD(r, rows, gamma=0.5, values="f8"), problem, n), 100)
    assert_close(iterates[::2], gd(gradients(problem, n), problem.x0(), 0.5, 50), 1e-12)


@pytest.mark.parametrize("momentum", [0.1, 0.9])
def test_powersgd_of_full_rank_with_momentum(momentum):
    """To rounding: m = λ m + grad f(x);  x -= gamma (grad f(x) + m)."""
    problem, n = Entropy(), 4
    method = PowerSGD(3, 3, gamma=0.05, values="f8", momentum=momentum)
    x, m = problem.x0(), 0.0
    wanted = [x]
    for _ in range(50):
        g = mean_gradient(problem, n, x)
        m = momentum * m + g
        x = x - 0.05 * (g + m)
        wanted.append(x)
    assert_close(trajectory(start(method, problem, n), 100)[::2], wanted, 1e-12)


def test_powersgd_resumes_with_its_momentum(tmp_path):
    method, problem = PowerSGD(1, 3, gamma=0.1, momentum=0.5), Entropy()
    whole = mpicomp.run(method, problem, workers=4, rounds=20)
    mpicomp.run(method, problem, workers=4, rounds=11, out=tmp_path / "run")
    resumed = mpicomp.run(method, problem, workers=4, rounds=20, out=tmp_path / "run", resume=True)
    assert resumed.iterates_sha256 == whole.iterates_sha256
    without = mpicomp.run(replace(method, momentum=0.0), problem, workers=4, rounds=20)
    assert whole.iterates_sha256 != without.iterates_sha256


@pytest.mark.parametrize("momentum", [-0.1, 1, 1.5, float("nan"), True, "0.9", None])
def test_what_is_no_momentum_is_refused(momentum):
    with pytest.raises(ConfigError, match=r"momentum=.*from 0"):
        PowerSGD(1, 3, gamma=0.1, momentum=momentum)


@pytest.mark.parametrize("values", ["f8", "f4", "bf16"])
@pytest.mark.parametrize(("r", "rows"), SHAPES)
def test_the_virtual_iterate_of_powersgd(r, rows, values):
    """x - gamma mean e_i = x_0 - gamma sum mean s_i to rounding, whatever the factors are rounded to."""
    problem, n = Entropy(), 4
    loop = start(PowerSGD(r, rows, gamma=0.3, values=values), problem, n, seed=5)
    virtual, scale = problem.x0(), 1.0
    for t in range(ROUNDS):
        virtual -= 0.3 * mean_gradient(problem, n, loop.x)
        loop.step(2 * t)
        loop.step(2 * t + 1)
        errors = np.array([w.e for w in loop.workers.values()])
        scale = max(scale, np.abs(loop.x).max(), np.abs(errors).max())
        assert np.abs(loop.x - 0.3 * errors.mean(axis=0) - virtual).max() <= 1e-15 * (t + 10) * scale


def test_with_powersgd_workers_are_as_one():
    """P is common and Q' = P' mean M_i, so heterogeneity plays no part: to rounding, the mean f on one."""
    problem, n = squares(4, 8, seed=9), 4
    alone = Squares(problem.A.mean(axis=0)[None], problem.b.mean(axis=0)[None], problem.start)
    method = PowerSGD(1, 4, gamma=0.2, values="f8")
    one = trajectory(start(method, alone, 1, seed=4), 100)
    assert_close(trajectory(start(method, problem, n, seed=4), 100), one, 1e-12)


def test_powersgd_converges_where_ef14_with_the_same_rank_does_not():
    """On heterogeneous quadratics: P P' is common to all workers, P_i P_i' is not."""
    problem, n = squares(4, 8, seed=9), 4

    def final(method, rounds):
        iterates = trajectory(start(method, problem, n), rounds)[-50:]
        return np.mean([grad_norm_sq(problem, n, x) for x in iterates])

    assert final(PowerSGD(1, 4, gamma=0.2, values="f8"), 500) < 1e-20
    assert final(EF21(RankR(1, 4), gamma="theory*4"), 500) < 1e-20
    assert final(EF14(RankR(1, 4), gamma=0.2), 300) > 1e-6


def test_the_errors_of_powersgd_stay_bounded():
    """Also where gradients never vanish on the workers: e_i = (I - P P') M_i."""
    loop = start(PowerSGD(1, 4, gamma=0.1), squares(4, 8, seed=9), 4)
    sizes = []
    for k in range(1000):
        loop.step(k)
        sizes += [np.abs(w.e).max() for w in loop.workers.values()] if k % 2 else []
    assert max(sizes[-400:]) < max(sizes[:400])


def test_lost_directions_are_drawn_anew():
    """Where all gradients are 0, Q becomes 0; away from there it is full rank again, not at rest for ever."""
    still = integers(2, 8, identical=True)
    still = replace(still, b=still.A @ still.start)
    loop = start(PowerSGD(2, 4, gamma=0.1, values="f8"), still, 2)
    assert not np.ptp(trajectory(loop, 4), axis=0).any()
    assert not loop.replica.P.any() and not loop.replica.Q.any()
    loop.replica.x = still.start + 1
    iterates = trajectory(loop, 20)[::2]
    assert_close(iterates, gd(gradients(still, 2), still.start + 1, 0.1, 10), 1e-12)


def test_the_bytes_of_powersgd():
    """r (rows + columns) values a step, P's rows first."""
    loop = start(PowerSGD(2, 3, gamma=0.1), Entropy(), 4)
    lengths = []
    for k in range(6):
        before = loop.ledger.up_bytes
        loop.step(k)
        lengths.append(loop.ledger.up_bytes - before)
    assert lengths == [4 * 2 * 3 * 4, 4 * 2 * 4 * 4] * 3
    assert loop.ledger.paper_bits_up == 8 * loop.ledger.up_bytes


def test_the_error_of_powersgd_is_counted_once_a_step():
    loop = start(PowerSGD(1, 3, gamma=0.3), Entropy(), 4)
    total = 0.0
    for k in range(40):
        loop.step(k)
        if k % 2:
            total += np.mean([np.sum(w.e**2) for w in loop.workers.values()])
        assert np.mean([f.meter.error for f in loop.objectives.values()]) == pytest.approx(total, rel=1e-12)
    assert total > 0


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"r": 0}, "r=0; allowed: a positive integer"),
        ({"rows": -1}, "rows=-1; allowed: a positive integer"),
        ({"values": "f5"}, "'f5'"),
        ({"down": RandK(2)}, "down.*lossless"),
        ({"batch": 0}, "batch=0"),
    ],
)
def test_what_powersgd_refuses(wrong, match):
    with pytest.raises(ConfigError, match=match):
        PowerSGD(**{"r": 1, "rows": 3, "gamma": 0.1, **wrong})


def test_rows_that_do_not_divide_d_are_refused():
    with pytest.raises(ConfigError, match="rows=5 does not divide the dimension d=12; nearest: rows=4 or 6"):
        start(PowerSGD(1, 5, gamma=0.1), Entropy(), 4)
