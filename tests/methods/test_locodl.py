"""LoCoDL: its transcription, mean u_i + v = 0, and the rate that its docstring proves."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Identity, Natural, PermK, RandK
from mpicomp.keys import Key
from mpicomp.methods import LoCoDL
from tests.reference.locodl import locodl
from tests.support.trajectories import (
    BY_HAND,
    HAND,
    PLACES,
    ROUNDS,
    UNBIASED,
    WHOLE,
    assert_close,
    codec,
    gradients,
    mean_gradient,
    resolved,
    rounding,
    squares,
    start,
    trajectory,
)


def iterations(method, seed: int, n: int, rounds: int) -> list[int]:
    return [method.iterations(Key(seed, k, None, n)) for k in range(rounds)]


def coins(method, seed: int, n: int, rounds: int) -> list[bool]:
    """Those of all iterations: each round ends with a head."""
    return [t == m for m in iterations(method, seed, n, rounds) for t in range(1, m + 1)]


def split(problem, n: int, mu: float) -> tuple[list, object]:
    """∇φ_i and ∇ψ."""
    return [lambda x, g=g: g(x) - mu / 2 * x for g in gradients(problem, n)], lambda x: mu / 2 * x


@pytest.mark.parametrize("place", range(len(PLACES)), ids=["d12-n4", "d13-n5", "d4-n9"])
@pytest.mark.parametrize("Q", UNBIASED, ids=repr)
def test_locodl_is_its_transcription(place, Q):
    """docs/methods.md, LoCoDL; with rates of its theory, and in the other places with others too."""
    problem, n = PLACES[place]
    d, gamma, mu = problem.dimension(), 0.5 / problem.constants(n).L_max, 0.04
    omega, a = Q.omega(d, n), Q.ab(d, n)[0]
    for rates in ({}, {"rho": 0.2, "alpha": 0.1})[: 1 + (place > 0)]:
        loop = start(LoCoDL(Q, mu, gamma=gamma, p=0.4, **rates), problem, n, seed=41)
        rho, chi = (
            rates.get("rho", 1 / (1 + a)),
            rates.get("alpha", 1 / (1 + a) / (1 + 2 * omega)) * (1 + 2 * omega),
        )
        local, regular = split(problem, n, mu)
        tossed = coins(loop.method, 41, n, ROUNDS)
        wanted, x, u, v = locodl(
            local, regular, problem.x0(), gamma, 0.4, rho, chi, omega, codec(Q, 41, n), tossed
        )
        assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))
        assert len(tossed) > 1.5 * ROUNDS
        assert np.allclose(loop.replica.v, v, atol=1e-6)
        assert all(np.allclose(at(loop, i), (x[i], u[i]), atol=1e-6) for i in range(n))


def at(loop, i: int) -> tuple[np.ndarray, np.ndarray]:
    """x_i and u_i after the exchange, which worker i computes when the next round begins."""
    m, r, w = loop.method, loop.replica, loop.workers[i]
    return w.x + m.rho * (r.y + (1 - m.rho) * r.d - w.x), w.u + m.alpha * m.p / m.gamma * r.d


@pytest.mark.parametrize("Q", UNBIASED, ids=repr)
def test_the_shifts_sum_to_zero(Q):
    """mean u_i + v = 0 after every round, to rounding, for every compressor."""
    problem, n = PLACES[0]
    loop = start(LoCoDL(Q, 0.05, gamma=0.2 / problem.constants(n).L_max, p=0.5), problem, n, seed=3)
    for k in range(ROUNDS):
        loop.step(k)
        total = np.mean([at(loop, i)[1] for i in range(n)], axis=0) + loop.replica.v
        assert np.abs(total).max() <= 1e-12 * np.abs(loop.replica.v).max()


def test_without_compression_and_local_steps_it_is_gradient_descent():
    """docs/methods.md, LoCoDL: the step is γ/2."""
    problem, n = PLACES[0]
    gamma = 1 / problem.constants(n).L_max
    loop = start(LoCoDL(WHOLE, 0.05, gamma=gamma, p=1.0), problem, n)
    x, wanted = problem.x0(), [problem.x0()]
    for _ in range(ROUNDS):
        x = x - gamma / 2 * mean_gradient(problem, n, x)
        wanted.append(x)
    assert (loop.method.rho, loop.method.alpha) == (1, 1)
    assert_close(trajectory(loop, ROUNDS), wanted, 1e-12)


@pytest.mark.parametrize("p", [0.05, 0.3, 1.0])
def test_the_iterations_of_a_round_are_geometric(p):
    """Within four standard errors; the same on all ranks, whatever the worker of the key."""
    method, N = LoCoDL(RandK(3), 0.1, gamma=0.1, p=p), 4000
    drawn = np.array(iterations(method, 5, 3, N))
    assert [method.iterations(Key(5, k, 2, 3)) for k in range(9)] == drawn[:9].tolist()
    for m in (1, 2, 5, 20):
        share = (1 - p) ** (m - 1)
        assert abs(np.mean(drawn >= m) - share) <= 4 * sqrt(share * (1 - share) / N)


def test_a_round_costs_its_gradients_and_one_message():
    problem, n = PLACES[0]
    method = LoCoDL(RandK(3, values="f8"), 0.05, gamma=0.01, p=0.3)
    run = mpicomp.run(method, problem, workers=n, rounds=20, every=20, seed=6)
    assert run.ledger.up_bytes == 20 * n * 24
    assert run.rows[-1].epochs == sum(iterations(method, 6, n, 20)) > 40


@pytest.mark.parametrize("Q", [RandK(1), PermK(), Natural(), Identity()], ids=repr)
def test_the_rate_of_its_proof(Q):
    """E Ψ/τ^t is at most Ψ⁰ at an exchange, t iterations after the start, as Ψ/τ^t is a supermartingale."""
    problem, n, mu, rounds, seeds = squares(4, 8, seed=9), 4, 0.5, 60, 12
    c, star = problem.constants(n), problem.x_star
    m = start(LoCoDL(Q, mu), problem, n).method
    tau = max((1 - m.gamma * mu / 2) ** 2, 1 - m.alpha * m.p**2)
    assert m.gamma * (c.L_max - mu / 2) - 1 == pytest.approx(1 - m.gamma * mu / 2)
    local, regular = split(problem, n, mu)
    weight = m.gamma**2 / (m.alpha * m.p**2)

    def psi(loop):
        there = [at(loop, i) for i in range(n)]
        squared = np.mean([np.sum((x - star) ** 2) for x, _ in there]) + np.sum((loop.replica.y - star) ** 2)
        shifts = np.mean([np.sum((u - g(star)) ** 2) for (_, u), g in zip(there, local, strict=True)])
        return squared + weight * (shifts + np.sum((loop.replica.v - regular(star)) ** 2))

    shares = np.zeros(seeds)
    for seed in range(seeds):
        loop = start(LoCoDL(Q, mu), problem, n, seed=seed)
        first, t = psi(loop), 0
        for k in range(rounds):
            t += m.iterations(Key(seed, k, None, n))
            loop.step(k)
        shares[seed] = psi(loop) / (first * tau**t)
    assert shares.mean() <= 1
    assert tau**t < 0.3


@pytest.mark.parametrize(("Q", "omega", "a"), BY_HAND, ids=lambda v: repr(v) if hasattr(v, "omega") else "")
def test_steps(Q, omega, a):
    """By hand: L_max = 5."""
    method = resolved(LoCoDL(Q, 0.01), 12, 4)
    assert method.gamma == pytest.approx(2 / 5)
    assert method.p == pytest.approx(min(1, sqrt((1 + omega) * (1 + a) * 0.01 / 5)))
    assert (method.rho, method.alpha) == pytest.approx((1 / (1 + a), 1 / (1 + a) / (1 + 2 * omega)))
    less = resolved(LoCoDL(Q, 0.01, rho=0.5 / (1 + a)), 12, 4)
    assert less.alpha == pytest.approx(0.75 / (1 + a) / (1 + 2 * omega))


def test_what_the_theorem_does_not_cover_is_refused():
    method = LoCoDL(RandK(3), 0.01)
    with pytest.raises(ConfigError, match=r"convex f_i"):
        resolved(method, 12, 4, replace(HAND, convex=False))
    with pytest.raises(ConfigError, match=rf"mu=9 for every f_i, and their mean f has {HAND.mu}: give mu="):
        resolved(replace(method, mu=9), 12, 4)
    with pytest.raises(ConfigError, match=r"mean f has 0\.0: take a problem with a quadratic penalty"):
        resolved(method, 12, 4, replace(HAND, mu=0.0))
    with pytest.raises(ConfigError, match=r"rho=0\.6: .*Leave rho out"):
        resolved(replace(method, rho=0.6), 12, 4)
    with pytest.raises(ConfigError, match=r"alpha=0\.2: .*Leave alpha out"):
        resolved(replace(method, alpha=0.2), 12, 4)
    free = replace(method, mu=9, gamma=0.1, p=0.5, rho=0.6, alpha=0.2)
    assert resolved(free, 12, 4, replace(HAND, convex=False)).rho == 0.6


@pytest.mark.parametrize("mu", [0, -1.0, float("nan"), float("inf"), True, "theory", None], ids=repr)
def test_a_curvature_that_is_none_is_refused(mu):
    with pytest.raises(ConfigError, match=r"mu=.*; allowed: a number above 0"):
        LoCoDL(RandK(2), mu)
