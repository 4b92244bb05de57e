"""MARINA on batches and with sampled workers: VR-MARINA and PP-MARINA."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Identity, Natural, PermK, RandK
from mpicomp.keys import Key
from mpicomp.methods import MARINA, PPMARINA, VRMARINA
from mpicomp.problems import Noisy, Quadratics
from mpicomp.transports.local import Local
from tests.reference.ppmarina import ppmarina
from tests.reference.vrmarina import vrmarina
from tests.support.finite_sums import (
    CASES,
    PLACES,
    SAMPLED,
    batches,
    by_hand,
    coins,
    every_case,
    every_place,
    gamma_of,
    gap,
    integer_sums,
    mean_grad_norm_sq,
    same_run,
    shown,
    sums,
    workers,
)
from tests.support.trajectories import (
    EIGHTH,
    ROUNDS,
    WHOLE,
    assert_close,
    codec,
    gradients,
    mean_gradient,
    resolved,
    rng,
    rounding,
    start,
    trajectory,
)

# --- the transcriptions ---

# VR-MARINA and PP-MARINA form g^k in round k and number by it, as MARINA does; messages, coins, batches and
# clients of round k are drawn with ``Key(seed, k, i, n)``.


def dense_for(Q) -> Identity:
    """Dense messages in f8, or in f4 where Q's are."""
    return Identity("f8" if rounding(Q) == 1e-12 else "f4")


def through(C, seed: int, n: int, gradient):
    """``gradient(i, k, x)`` as it arrives."""
    arrives = codec(C, seed, n)
    return lambda i, k, x: arrives(i, k, gradient(i, k, x))


def whole_of(problem):
    grads = gradients(problem, workers(problem))
    return lambda i, k, x: grads[i](x)


@every_case
@pytest.mark.parametrize("online", [False, True], ids=["finite", "online"])
def test_vrmarina_is_its_transcription(problem, Q, b, online):
    """docs/methods.md, VRMARINA: dense rounds, the first among them, send full
    gradients or 3 fresh samples."""
    n, sync = workers(problem), dense_for(Q)
    method = VRMARINA(Q, b, gamma=0.02, p=0.2, sync_batch=3 if online else None, sync=sync)
    loop = start(method, problem, n, seed=41)
    wanted = vrmarina(
        n,
        through(sync, 41, n, batches(problem, 41, 3) if online else whole_of(problem)),
        batches(problem, 41, b),
        problem.x0(),
        loop.method.gamma,
        codec(Q, 41, n),
        coins("marina/coin", 41, n, 0.2),
        ROUNDS,
    )
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))


@pytest.mark.parametrize("r", [3, 0.3])
@pytest.mark.parametrize(("problem", "Q"), [case[:2] for case in CASES], ids=shown)
def test_ppmarina_is_its_transcription(problem, Q, r):
    """docs/methods.md, PPMARINA, clients drawn without replacement."""
    n, sync = workers(problem), dense_for(Q)
    loop = start(PPMARINA(Q, r, p=0.2, sync=sync), problem, n, seed=42)
    count = r if r >= 1 else round(r * n)

    def clients(k):
        drawn = Key(42, k, None, n).shared("ppmarina/clients").permutation(n, 0, count).tolist()
        assert len(set(drawn)) == count
        return sorted(drawn)

    dense = codec(sync, 42, n)
    wanted = ppmarina(
        gradients(problem, n),
        problem.x0(),
        loop.method.gamma,
        codec(Q, 42, n),
        coins("marina/coin", 42, n, 0.2),
        clients,
        ROUNDS,
        lambda i, v: dense(i, 0, v),
    )
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))


# --- what they are in special cases ---


@every_place
@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural(), WHOLE], ids=repr)
@pytest.mark.parametrize("b", [None, "m"])
def test_vrmarina_with_whole_batches_is_marina(problem, Q, b):
    """Exact.  docs/methods.md, VRMARINA: b' = m, the samples in their order."""
    n, m = problem.A.shape[:2]
    options = {"gamma": 0.1, "p": 0.2}
    assert same_run(VRMARINA(Q, m if b else None, **options), MARINA(Q, **options), problem, n)
    assert same_run(VRMARINA(Q, m, sync_batch=m, **options), MARINA(Q, **options), problem, n)
    assert not same_run(VRMARINA(Q, m - 1, **options), MARINA(Q, **options), problem, n)


@every_place
@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural(), WHOLE], ids=repr)
def test_ppmarina_with_all_clients_is_marina(problem, Q):
    """Exact, and at the same number of gradients.  docs/methods.md, PPMARINA: r = n without replacement."""
    n = workers(problem)
    marina = MARINA(Q, p=0.2)
    for r in (n, None):
        assert same_run(PPMARINA(Q, r, p=0.2), marina, problem, n)
        assert same_run(PPMARINA(Q, r), MARINA(Q), problem, n)
    assert not same_run(PPMARINA(Q, n - 1, p=0.2), marina, problem, n)
    loops = [start(method, problem, n) for method in (PPMARINA(Q, n, p=0.2), marina)]
    for loop in loops:
        trajectory(loop, 20)
    assert [f.meter.epochs for loop in loops for f in loop.objectives.values()] == [20.0] * (2 * n)


def test_after_a_dense_round_the_estimate_is_the_gradient():
    """Exact.  docs/methods.md, MARINA: after c = 1, g = grad f(x); not after c = 0,
    on batches or from some clients."""
    problem, n = integer_sums(4, 4, 8), 4
    for method in (
        VRMARINA(WHOLE, 2, gamma=EIGHTH, p=0.4, sync=WHOLE),
        PPMARINA(WHOLE, 2, gamma=EIGHTH, p=0.4, sync=WHOLE),
    ):
        loop = start(method, problem, n, seed=8)
        exact = []
        for k in range(8):
            x = loop.replica.x.copy()
            loop.step(k)
            assert np.array_equal(loop.replica.previous, x)
            exact.append(np.array_equal(loop.replica.g, mean_gradient(problem, n, x)))
        dense = [k == 0 or Key(8, k, None, n).shared("marina/coin").coin(0.4) for k in range(8)]
        assert exact == dense and 1 < sum(dense) < 8


# --- partial participation ---


@pytest.mark.parametrize("r", [1, 3, 0.5])
def test_workers_that_are_not_drawn_compute_and_send_nothing(r):
    """docs/methods.md, PPMARINA, seen from outside: the ledger and the gradients
    asked for, round by round."""
    problem, n, d = PLACES[1], 5, 13
    method = PPMARINA(RandK(4), r, gamma=0.05, p=0.2)
    loop = start(method, problem, n, seed=10)
    count = r if r >= 1 else round(r * n)
    drawn, dense, before = Counter(), 0, set(range(n))
    for k in range(60):
        sent, asked = loop.ledger.up.copy(), [f.meter.epochs for f in loop.objectives.values()]
        loop.step(k)
        sent = (loop.ledger.up - sent).tolist()
        asked = [f.meter.epochs - was for f, was in zip(loop.objectives.values(), asked, strict=True)]
        if sent == [d * 4] * n:  # a dense round asks everyone
            assert asked == [1.0] * n
            dense, before = dense + 1, set(range(n))
            continue
        clients = {i for i in range(n) if sent[i]}
        assert len(clients) == count and all(sent[i] == 4 * 4 for i in clients)
        # One gradient of who took part in the round before, and two of who did not; none of who sits out.
        assert asked == [(1.0 if i in before else 2.0) if i in clients else 0.0 for i in range(n)]
        drawn.update(clients)
        before = clients
    assert 5 < dense < 25
    assert len(drawn) == n


def test_clients_are_drawn_uniformly():
    """All C(5, 2) pairs alike: 2000 rounds, chi-squared of 9 degrees of freedom below its 1 - 1e-4 point."""
    method = PPMARINA(RandK(4), 2, gamma=0.05, p=1e-9)
    seen = Counter(tuple(method.senders(Key(3, k, None, 5))) for k in range(1, 2001))
    assert len(seen) == 10 and all(i < j for i, j in seen)
    assert sum((count - 200) ** 2 / 200 for count in seen.values()) < 33.7


@pytest.mark.parametrize("r", [6, 100])
def test_more_clients_than_workers_are_refused(r):
    for method in (PPMARINA(RandK(4), r), PPMARINA(RandK(4), r, gamma=0.1, p=0.5)):
        with pytest.raises(ConfigError, match=rf"r={r} of 5 workers; allowed: 1 to 5"):
            mpicomp.run(method, PLACES[1], workers=5, rounds=3, transport=Local(5))


# --- step sizes ---


@by_hand
def test_vrmarina_steps(Q, omega, A, B):
    """docs/methods.md, VRMARINA, in terms of A and B; for independent compressors as the paper states it."""
    n, p = 4, 0.15
    method = resolved(VRMARINA(Q, 5, p=p), 12, n, SAMPLED)
    spread = (A - B) * 3.5**2 + B * 1.25**2 + (A + (1 - B) / n) * 6**2 / 5
    assert method.gamma == pytest.approx(1 / (3 + sqrt((1 - p) / p * spread)))
    if A == omega / n:
        paper = (1 - p) / (p * n) * (omega * 3.5**2 + (1 + omega) * 6**2 / 5)
        assert method.gamma == pytest.approx(1 / (3 + sqrt(paper)))
    assert resolved(VRMARINA(Q, 0.25, p=p), 12, n, SAMPLED).gamma == pytest.approx(method.gamma)
    assert resolved(VRMARINA(Q, 5, p=p, sync_batch=9), 12, n, SAMPLED).gamma == method.gamma
    assert resolved(VRMARINA(Q, None, p=p), 12, n).gamma == resolved(MARINA(Q, p=p), 12, n).gamma


@by_hand
@pytest.mark.parametrize("r", [1, 3, 4])
def test_ppmarina_steps(Q, omega, A, B, r):
    """docs/methods.md, PPMARINA, without replacement; never below the theorem's,
    which is with replacement."""
    n, p = 4, 0.15
    v = (n - r) / (r * (n - 1))
    spread = (A * n / r - B) * 3.5**2 + (B + (1 - B) * v) * 1.25**2
    gamma = resolved(PPMARINA(Q, r, p=p), 12, n).gamma
    assert gamma == pytest.approx(1 / (3 + sqrt((1 - p) / p * spread)))
    if A == omega / n:
        assert gamma >= 1 / (3.5 * (1 + sqrt((1 - p) * (1 + omega) / (p * r))))
    if r == n:
        assert gamma == pytest.approx(resolved(MARINA(Q, p=p), 12, n).gamma)


def test_ppmarina_with_one_worker_has_a_step():
    assert (
        resolved(PPMARINA(RandK(3), 1, p=0.2), 12, 1).gamma == resolved(MARINA(RandK(3), p=0.2), 12, 1).gamma
    )


@pytest.mark.parametrize("Q", [RandK(2, values="f8"), PermK(values="f8")], ids=repr)
@pytest.mark.parametrize(
    "method",
    [PPMARINA(WHOLE, 1, 0.1, 1e-9), PPMARINA(WHOLE, 3, 0.1, 1e-9), VRMARINA(WHOLE, 2, 0.1, 1e-9)],
    ids=repr,
)
def test_the_variance_of_a_compressed_round_is_as_the_steps_assume(method, Q):
    """E |g+ - g - mean D_i|^2, D_i = grad f_i(x+) - grad f_i(x), is for these compressors what the steps take
    it to be at most; a batch of 2 of 6 samples has the variance V_i = (6-2)/(2 (6-1)) times that of one:

    sampled clients  (A n/r - B) M + (B + (1-B) v) (M - |mean D_i|^2),  M = mean |D_i|^2, v = (n-r)/(r (n-1))
    batches          (A - B) M + B (M - |mean D_i|^2) + (A + (1-B)/n) mean V_i

    The mean of 1500 draws is within 5 standard errors, chance 1e-6 of failing, were they normal."""
    problem, n, d, N = sums(4, 6, 6, seed=4), 4, 6, 1500
    x, previous = problem.x0(), problem.x0() + rng(1).normal(size=d)
    method = replace(method, Q=Q)
    A, B = Q.ab(d, n)
    samples = problem.A @ (x - previous)
    local = samples.mean(axis=1)
    M, mean = np.mean(np.sum(local**2, axis=1)), local.mean(axis=0)
    if isinstance(method, PPMARINA):
        v = (n - method.r) / (method.r * (n - 1))
        wanted = (A * n / method.r - B) * M + (B + (1 - B) * v) * (M - np.sum(mean**2))
    else:
        single = np.mean(np.sum((samples - local[:, None]) ** 2, axis=-1))
        wanted = (A - B) * M + B * (M - np.sum(mean**2)) + (A + (1 - B) / n) * single * 4 / 10
    objectives, replica = [problem.objective(i, n) for i in range(n)], method.replica(x)
    replica.previous = previous
    found = []

    def up(i, key):
        worker = method.worker(x)
        if isinstance(method, PPMARINA):
            worker.gradient = objectives[i].grad(previous)
        return key.of(i), method.worker_step(worker, replica, objectives[i], key.of(i))

    for k in range(1, N + 1):
        key = Key(1, k, None, n)
        step = method.server_step(None, replica, key)
        for i in method.senders(key):
            step.take(*up(i, key))
        down = step.close()
        found.append(np.sum((method.down.decompress(down.m, d, key) - mean) ** 2))
    assert abs(np.mean(found) - wanted) < 5 * np.std(found) / sqrt(N)


def test_a_fraction_of_samples_drawn_afresh_is_refused():
    with pytest.raises(ConfigError, match=r"batch=0\.1"):
        resolved(VRMARINA(RandK(3), 0.1, sync_batch=40), 12, 4, replace(SAMPLED, samples=None))


# --- theorems, with gamma='theory' ---


@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural(), WHOLE], ids=repr)
def test_vrmarina_and_ppmarina_reach_the_rate_of_their_theorem(Q):
    """docs/methods.md, VRMARINA and PPMARINA: (1/T) sum E |grad f(x_t)|^2 <= 2
    Delta_0/(gamma T).  Mean of 4 seeds; no slack."""
    problem, n, T = PLACES[0], 4, 60
    for method in (VRMARINA(Q, 1), VRMARINA(Q, 3), PPMARINA(Q, 1), PPMARINA(Q, 3)):
        bound = 2 * gap(problem, n) / (gamma_of(method, problem, n) * T)
        assert mean_grad_norm_sq(method, problem, n, T) <= bound


@pytest.mark.parametrize("Q", [RandK(5), PermK()], ids=repr)
def test_online_vrmarina_reaches_the_rate_of_its_theorem(Q):
    """docs/methods.md, VRMARINA: (1/T) sum E |grad f(x_t)|^2 <= 2 Delta_0/(gamma T)
    + (1 + 1/(p T)) sigma^2/(n b), b being the samples of a dense round, as E |g -
    grad f|^2 <= sigma^2/(n b) after it; which is less than for b'."""
    inner, n, T, sigma = Quadratics(d=20, noise=0.3, lam=1e-3), 5, 100, 4.0
    problem = Noisy(inner, sigma)
    method = VRMARINA(Q, 1, sync_batch=100)
    solved = start(method, problem, n).method
    assert solved.p == pytest.approx(min(1 / 101, start(MARINA(Q), inner, n).method.p))
    noise = sigma**2 / (n * 100) * (1 + 1 / (solved.p * T))
    bound = 2 * gap(inner, n) / (solved.gamma * T) + noise
    assert mean_grad_norm_sq(method, problem, n, T) <= bound < sigma**2 / n


@pytest.mark.parametrize("Q", [RandK(3, values="f8"), PermK(values="f8"), WHOLE], ids=repr)
@pytest.mark.parametrize("r", [1, 3])
def test_ppmarina_converges_linearly_where_f_is_strongly_convex(Q, r):
    """By more than half in each span of rounds, although most rounds hear some workers only."""
    problem, n = PLACES[0], 4
    iterates = trajectory(start(PPMARINA(Q, r, sync=WHOLE), problem, n), 300)[::60]
    errors = [np.sum((x - problem.x_star) ** 2) for x in iterates]
    assert all(new < 0.5 * old or new < 1e-20 for old, new in pairwise(errors)), errors
