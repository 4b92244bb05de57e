"""DIANA on batches: VR-DIANA, and DIANA and DCGD with a batch's gradient for the whole one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Natural, PermK, RandK
from mpicomp.keys import Key
from mpicomp.methods import DCGD, DIANA, VRDIANA
from tests.reference.dcgd import dcgd
from tests.reference.diana import diana
from tests.reference.vrdiana import vrdiana
from tests.support.finite_sums import (
    PLACES,
    SAMPLED,
    batches,
    by_hand,
    coins,
    every_case,
    integer_sums,
    sums,
    workers,
)
from tests.support.trajectories import (
    EIGHTH,
    HAND,
    ROUNDS,
    assert_close,
    assert_equal,
    codec,
    gradients,
    resolved,
    rounding,
    start,
    trajectory,
)

# --- the transcriptions ---

# Messages, coins and batches of round k are drawn with ``Key(seed, k, i, n)``.


@every_case
def test_vrdiana_is_its_transcription(problem, Q, b):
    """docs/methods.md, VRDIANA, both x and the reference point w, which moves to x before the step."""
    n = workers(problem)
    loop = start(VRDIANA(Q, b, gamma="theory*4", p=0.2), problem, n, seed=43)
    iterates, references = vrdiana(
        gradients(problem, n),
        batches(problem, 43, b),
        problem.x0(),
        loop.method.gamma,
        loop.method.alpha,
        codec(Q, 43, n),
        coins("vrdiana/coin", 43, n, 0.2),
        ROUNDS,
    )
    assert_close(trajectory(loop, ROUNDS), iterates, rounding(Q))
    assert np.abs(loop.replica.w - references[-1]).max() <= rounding(Q) * np.abs(references).max()


def in_turn(batch, n: int) -> list:
    """``batch`` for transcriptions that ask each worker once a round, and know no round number."""
    asked: Counter[int] = Counter()

    def gradient(i):
        def grad(x):
            asked[i] += 1
            return batch(i, asked[i] - 1, x)

        return grad

    return [gradient(i) for i in range(n)]


@every_case
def test_dcgd_and_diana_on_batches_are_their_transcriptions(problem, Q, b):
    """docs/methods.md, DCGD (QSGD) and DIANA, with a batch's gradient for grad f_i;
    one gradient a worker and round."""
    n = workers(problem)
    batch, compress = batches(problem, 46, b), codec(Q, 46, n)
    loop = start(DCGD(Q, batch=b), problem, n, seed=46)
    wanted = dcgd(in_turn(batch, n), problem.x0(), loop.method.gamma, compress, ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))
    loop = start(DIANA(Q, batch=b), problem, n, seed=46)
    gamma, alpha = loop.method.gamma, loop.method.alpha
    wanted = diana(in_turn(batch, n), problem.x0(), gamma, alpha, compress, ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))


# --- what it is in special cases ---


def test_vrdiana_with_whole_batches_is_diana():
    """Exact.  docs/methods.md, VRDIANA: m = b'; whatever w is, its gradients cancel."""
    problem, n, m = integer_sums(4, 4, 8), 4, 4
    wanted = trajectory(start(DIANA(RandK(4, values="f8"), gamma=EIGHTH), problem, n), 7)
    for batch in (m, None):
        for p in (0.3, 1.0):
            method = VRDIANA(RandK(4, values="f8"), batch, gamma=EIGHTH, p=p)
            assert_equal(trajectory(start(method, problem, n), 7), wanted)
    method = VRDIANA(RandK(4, values="f8"), 2, gamma=EIGHTH, p=0.3)
    assert not np.array_equal(trajectory(start(method, problem, n), 7), wanted)


@every_case
def test_vrdiana_at_its_reference_point_sends_the_whole_gradient(problem, Q, b):
    """Exact.  docs/methods.md, VRDIANA: at x = w, as in round 0, the estimate
    equals grad f_i(w) for any batch."""
    n = workers(problem)
    loops = [start(method, problem, n, 3) for method in (VRDIANA(Q, b, gamma=0.1), DIANA(Q, gamma=0.1))]
    for loop in loops:
        loop.step(0)
    assert np.array_equal(loops[0].replica.x, loops[1].replica.x)
    assert loops[0].replica.h.any()
    for one, other in zip(*(loop.workers.values() for loop in loops), strict=True):
        assert np.array_equal(one.h, other.h)


def test_the_reference_point_is_an_iterate_before_its_step():
    """Exact.  docs/methods.md, VRDIANA: with u^k = 1, w^{k+1} = x^k, else w^k; and
    each worker knows grad f_i(w)."""
    problem, n = PLACES[0], 4
    loop = start(VRDIANA(RandK(3), 2, gamma=0.05, p=0.3), problem, n, seed=9)
    w = problem.x0()
    for k in range(ROUNDS):
        x = loop.replica.x.copy()
        loop.step(k)
        for i, worker in loop.workers.items():
            assert np.array_equal(worker.gradient, problem.objective(i, n).grad(w))
        if Key(9, k, None, n).shared("vrdiana/coin").coin(0.3):
            w = x
        assert np.array_equal(loop.replica.w, w)
    assert not np.array_equal(w, problem.x0())


# --- step sizes ---


@by_hand
def test_vrdiana_steps(Q, omega, A, B):
    """docs/methods.md, VRDIANA, with A for omega/n, by the constant of all samples;
    if not convex, the three bounds."""
    n = 4
    convex = resolved(VRDIANA(Q, 5), 12, n, SAMPLED)
    assert convex.gamma == pytest.approx(1 / (7 * (1 + 36 * (A + 1 / n))))
    if A == omega / n:
        assert convex.gamma == pytest.approx(1 / (7 * (1 + 36 * (omega + 1) / n)))
    assert convex.alpha == pytest.approx(1 / (1 + omega))
    assert resolved(VRDIANA(Q, None), 12, n).gamma == pytest.approx(1 / (5 * (1 + 36 * (A + 1 / n))))
    for L_sigma in (6.0, 0.5, 0.0):
        c = replace(SAMPLED, convex=False, L_sigma=L_sigma)
        T, p = (4 * A + 1 / n) * L_sigma**2 / 5, 5 / 20
        bounds = [1 / 12]
        if A + T:
            bounds += [1 / sqrt(12 * A * 3.5**2 * (1 + omega) ** 2 + 4 * T / p)]
        if T:
            bounds += [(p**2 / (16 * 3 * T)) ** (1 / 3)]
        found = resolved(VRDIANA(Q, 5), 12, n, c)
        assert (found.p, found.gamma) == (p, pytest.approx(min(bounds)))
        recalled = 10 * 6 * sqrt(1 + A) * (4 ** (2 / 3) + omega + 1)  # Theorem 4 of the paper, as recalled
        assert found.gamma > 1 / recalled
    assert resolved(VRDIANA(Q, 5), 12, n, replace(SAMPLED, mu=None)) == resolved(
        VRDIANA(Q, 5), 12, n, replace(SAMPLED, mu=None, L_sigma=6.0)
    )
    with pytest.raises(ConfigError, match="alpha"):
        resolved(VRDIANA(RandK(3), 5, alpha=0.3), 12, n, replace(SAMPLED, mu=None))
    unknown = replace(HAND, mu=None)
    assert resolved(VRDIANA(Q, None), 12, n, unknown).gamma == pytest.approx(
        resolved(DIANA(Q), 12, n, unknown).gamma
    )


# --- its theorem, with gamma='theory' ---


@pytest.mark.parametrize(
    ("Q", "b"),
    [(RandK(2), 1), (RandK(2), 3), (RandK(4, mask="shared"), 1), (Natural(), 3), (PermK(), 1)],
    ids=repr,
)
def test_vrdiana_contracts_linearly(Q, b):
    """docs/methods.md, VRDIANA.  With H = mean |h_i - grad f_i(x*)|^2, W = mean |grad f_ij(w) - grad
    f_ij(x*)|^2 and V = |x - x*|^2 + gamma^2 (4 A/alpha H + (20 A + 4/n)/p W), E V_k <= rate^k V_0, rate the
    largest of 1 - gamma mu, 1 - alpha/2 and 1 - p/2.

    For with F = f(x) - f*, E |g|^2 <= (2 + 8 A + 4/n) L F + 2 A H + 2 (A + 1/n) W, E H+ <= (1 - alpha) H +
    alpha (6 L F + 2 W) and E W+ <= (1 - p) W + 2 p L F, and gamma <= 1/(L (1 + 36 A + 6/n)) will do.
    The mean of 4 seeds, at every 15th round, no slack: runs lie well below the bound."""
    problem, n, d = sums(4, 6, 8, seed=3), 4, 8
    mu, x_star = problem.constants(n).mu, problem.x_star
    limits = [grad(x_star) for grad in gradients(problem, n)]
    samples = problem.A @ x_star - problem.b
    A, _ = Q.ab(d, n)
    values = []
    for seed in range(4):
        loop = start(VRDIANA(Q, b), problem, n, seed)
        gamma, alpha, p = loop.method.gamma, loop.method.alpha, loop.method.p
        history = []
        for k in range(151):
            if k % 15 == 0:
                H = np.mean([np.sum((w.h - limits[i]) ** 2) for i, w in loop.workers.items()])
                W = np.mean(np.sum((problem.A @ loop.replica.w - problem.b - samples) ** 2, axis=-1))
                V = np.sum((loop.replica.x - x_star) ** 2) + gamma**2 * 4 * A / alpha * H
                history.append(V + gamma**2 * (20 * A + 4 / n) / p * W)
            loop.step(k)
        values.append(history)
    rate = max(1 - gamma * mu, 1 - alpha / 2, 1 - p / 2)
    mean = np.mean(values, axis=0)
    assert mean[-1] < mean[0] / 4
    assert all(v <= rate ** (15 * j) * mean[0] for j, v in enumerate(mean))
