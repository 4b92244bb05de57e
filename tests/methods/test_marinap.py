"""MARINA-P: its transcription, what the workers' models are in special cases, its bound, and its messages."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError, DivergedError, MessageError, MpicompError
from mpicomp.compressors import Identity, Natural, PermK, RandK, Sign, TopK
from mpicomp.keys import Key
from mpicomp.methods import GD, MARINAP
from mpicomp.methods.base import Message
from mpicomp.transports.local import Local
from tests.reference.marinap import marinap
from tests.support.own_models import heard, models
from tests.support.trajectories import (
    BY_HAND,
    EIGHTH,
    EXACT,
    HAND,
    L_TILDE,
    PLACES,
    ROUNDS,
    UNBIASED,
    WHOLE,
    Entropy,
    assert_close,
    assert_equal,
    codec,
    coin_of,
    grad_norm_sq,
    gradients,
    integers,
    objective_value,
    resolved,
    rounding,
    server_codec,
    squares,
    start,
    trajectory,
)

SHARED = RandK(4, mask="shared", values="f8")


@pytest.mark.parametrize(("problem", "n"), PLACES, ids=["d12-n4", "d13-n5", "d4-n9"])
@pytest.mark.parametrize("Q", UNBIASED, ids=repr)
def test_marinap_is_its_transcription(problem, n, Q):
    """docs/methods.md, MARINAP, x and each w_i; whole models and gradients in f8, and in f4."""
    gamma = 0.3 / problem.constants(n).L_max
    for sync in (WHOLE, Identity()):
        loop = start(MARINAP(Q, gamma=gamma, p=0.3, sync=sync), problem, n, seed=17)
        ways = codec(sync, 17, n), codec(Q, 17, n), server_codec(sync, 17, n)
        coin = coin_of("marinap/coin", 17, n, 0.3)
        wanted, w = marinap(gradients(problem, n), problem.x0(), gamma, *ways, coin, ROUNDS)
        iterates, tolerance = [loop.x.copy()], max(rounding(Q), rounding(sync))
        for k in range(ROUNDS):
            loop.step(k)
            iterates.append(loop.x.copy())
            scale = np.abs(w[k + 1]).max()
            assert np.abs(np.subtract(models(loop, k), w[k + 1])).max() <= tolerance * scale
        assert_close(iterates, wanted, tolerance)
        assert 5 < sum(map(coin, range(ROUNDS))) < 30


@pytest.mark.parametrize("layout", ["uniform", "block"])
def test_the_messages_of_permk_are_the_step_and_the_models_mean_is_x(layout):
    """Exact: mean Q_i(x⁺ - x) = x⁺ - x, and mean w_i = x.  After one round from w_i = x, mean|w_i - x|² is
    (n - 1)|x⁺ - x|², as in the docstring's E W⁺ ≤ W + ω|y|²."""
    problem, n, Q = integers(4, 8), 4, PermK(layout, values="f8")
    method = MARINAP(Q, gamma=EIGHTH, p=1e-9, sync=WHOLE)
    _, transport = heard(method, problem, n, EXACT, seed=4)
    loop = start(method, problem, n, seed=4)
    iterates = trajectory(loop, 1)
    step = iterates[1] - iterates[0]
    spread = [np.sum((w.w - iterates[1]) ** 2) for w in loop.workers.values()]
    assert np.mean(spread) == (n - 1) * np.sum(step**2) > 0
    for k in range(1, EXACT):
        loop.step(k)
        iterates.append(loop.x)
        assert np.array_equal(np.mean(models(loop, k), axis=0), loop.x)
    for k in range(EXACT):
        sent = [Q.decompress(transport.own[k][i], 8, Key(4, k, i, n)) for i in range(n)]
        assert np.array_equal(np.mean(sent, axis=0), iterates[k + 1] - iterates[k])
        assert [np.count_nonzero(m) <= 2 for m in sent] == [True] * n


@pytest.mark.parametrize(
    "method",
    [
        MARINAP(PermK(values="f8"), gamma=EIGHTH, p=1.0, sync=WHOLE),
        MARINAP(WHOLE, gamma=EIGHTH, p=0.3, sync=WHOLE),
    ],
    ids=["p = 1", "lossless"],
)
def test_without_compression_it_is_gradient_descent(method):
    """Exact; every w_i is x."""
    problem = integers(4, 8)
    wanted = trajectory(start(GD(EIGHTH, values="f8"), problem, 4), EXACT)
    loop = start(method, problem, 4)
    assert_equal(trajectory(loop, EXACT), wanted)
    assert np.array_equal(models(loop, EXACT - 1), [loop.x] * 4)


@pytest.mark.parametrize("p", [None, 0.3])
def test_one_worker_with_permk_is_gradient_descent(p):
    """Exact; with one worker PermK sends all, p is 1, and theory's step is 1/L."""
    problem = integers(2, 8, identical=True)
    problem = replace(problem, A=problem.A[:1], b=problem.b[:1])
    wanted = trajectory(start(GD(EIGHTH, values="f8"), problem, 1), EXACT)
    loop = start(MARINAP(PermK(values="f8"), gamma=EIGHTH, p=p, sync=WHOLE), problem, 1)
    assert_equal(trajectory(loop, EXACT), wanted)
    method = resolved(MARINAP(PermK(), p=p), 8, 1)
    assert (method.p, method.gamma) == (p or 1.0, 1 / HAND.L)


def test_workers_of_one_mask_have_one_model():
    """Exact: the same message to all, so all w_i are equal, and other than x."""
    problem, n = PLACES[0]
    loop = start(MARINAP(SHARED, gamma=0.2, p=0.2, sync=WHOLE), problem, n, seed=2)
    for k in range(ROUNDS):
        loop.step(k)
        first, *others = models(loop, k)
        assert all(np.array_equal(first, w) for w in others)
    assert not np.allclose(first, loop.x)


def test_the_coin_is_one_for_all_ranks():
    """Whole models go down in a share p of the rounds, within four standard errors."""
    method, N = MARINAP(PermK(), gamma=0.1, p=0.3), 4000
    falls = [not method.scatters(Key(8, k, None, 4)) for k in range(N)]
    assert falls[:200] == [not method.scatters(Key(8, k, 3, 4)) for k in range(200)]
    assert abs(np.mean(falls) - 0.3) <= 4 * sqrt(0.3 * 0.7 / N)


# --- the step and its bound ---


@pytest.mark.parametrize(("Q", "omega", "A"), BY_HAND, ids=lambda v: repr(v) if hasattr(v, "omega") else "")
def test_steps(Q, omega, A):
    """By hand: L = 3, L_± = 1.25; θ = A - B, which is 0 for PermK, whose A and B are 1."""
    general = resolved(MARINAP(Q, p=0.2), 12, 4)
    assert general.gamma == pytest.approx(1 / (3 + 2 * L_TILDE * sqrt(omega)))
    theta = 0 if isinstance(Q, PermK) else A
    M = min(L_TILDE * sqrt(omega), 1.25 * sqrt(omega) + 3 * sqrt(theta))
    quadratic = replace(HAND, quadratic=True)
    assert resolved(MARINAP(Q, p=0.2), 12, 4, quadratic).gamma == pytest.approx(1 / (3 + 2 * M))
    assert resolved(MARINAP(Q, p=1.0), 12, 4).gamma == 1 / 3


def test_p_is_the_share_of_a_whole_model_that_a_message_is():
    for Q, p in ((RandK(3), 1 / 4), (PermK(), 1 / 4), (PermK(values="f8"), 1 / 2), (Identity(), 1)):
        assert resolved(MARINAP(Q), 12, 4).p == p
    with pytest.raises(ConfigError, match="depends on the vector"):
        resolved(MARINAP(mpicomp.Lossless()), 12, 4)


@pytest.mark.parametrize("Q", [PermK(), RandK(2), RandK(2, mask="shared"), Natural()], ids=repr)
@pytest.mark.parametrize("problem", [squares(4, 8, seed=3), Entropy(d=8)], ids=["quadratic", "logistic"])
def test_the_bound_of_its_proof(problem, Q):
    """(1/T) Σ E|∇f(x^k)|² ≤ 2 (f(x⁰) - f*)/(γT), which gradient descent with the step 1/L comes near."""
    n, T, seeds = 4, 60, 8
    least = trajectory(start(GD(gamma=1 / problem.constants(n).L), problem, n), 3000)[-1]
    room = objective_value(problem, n, problem.x0()) - objective_value(problem, n, least)
    method, totals = MARINAP(Q), []
    for seed in range(seeds):
        loop = start(method, problem, n, seed=seed)
        totals.append(sum(grad_norm_sq(problem, n, x) for x in trajectory(loop, T)[:-1]))
    share = np.mean(totals) * loop.method.gamma / (2 * room)
    assert 0.2 < share <= 1


def test_permk_takes_the_step_of_gradient_descent_where_matrices_are_equal():
    """L_± = 0: mean ∇f_i(w_i) = ∇f(mean w_i) = ∇f(x), so x is that of gradient descent.  Exact."""
    problem = integers(4, 8, same_hessian=True)
    wanted = trajectory(start(GD(EIGHTH, values="f8"), problem, 4), EXACT)
    method = MARINAP(PermK(values="f8"), gamma=EIGHTH, p=1e-9, sync=WHOLE)
    loop = start(method, problem, 4)
    assert_equal(trajectory(loop, EXACT), wanted)
    assert not np.array_equal(models(loop, EXACT - 1)[0], loop.x)
    c = problem.constants(4)
    assert c.L_pm == 0 and resolved(MARINAP(PermK()), 8, 4, c).gamma == 1 / c.L


# --- messages ---


def test_each_worker_is_charged_what_it_received():
    """PermK with d = 13 and n = 4: three or four numbers each, with one broadcast of all to all."""
    problem, n, T = mpicomp.Quadratics(d=13, noise=0.5, lam=0.1), 4, 40
    run, transport = heard(MARINAP(PermK(), gamma=0.05, p=0.3), problem, n, T, seed=3)
    own = np.array([[len(m.get(i, ())) for i in range(n)] for m in transport.own[:T]])
    whole = own.sum(axis=1) == 0
    assert 3 < whole.sum() < 25 and transport.down == [4 * 13 if w else 0 for w in whole]
    assert all(sorted(row) == [12, 12, 12, 16] for row in own[~whole])
    assert run.ledger.down.tolist() == (own.sum(axis=0) + 4 * 13 * whole.sum()).tolist()
    assert run.ledger.own.tolist() == own.sum(axis=0).tolist()
    assert len(set(run.ledger.down.tolist())) > 1
    assert run.ledger.up.tolist() == [4 * 13 * T] * n
    assert run.ledger.paper_bits_down == 8 * run.ledger.down_bytes
    for k, row in enumerate(run.rows):
        assert row.down_bytes == own[:k].sum() + n * sum(transport.down[:k])


class Cutting(Local):
    """Cuts the last byte off the message to worker 2 in round 3, or adds one to an empty broadcast."""

    def __init__(self, what):
        super().__init__(4)
        self.what = what

    def scatter(self, make, take):
        here = self.what == "own" and self.activity == "round 3"
        super().scatter(make, lambda i, m: take(i, m[:-1] if here and i == 2 else m))

    def broadcast(self, message):
        if self.what == "all" and self.activity == "round 3":
            message = np.zeros(1, np.uint8)
        return super().broadcast(message)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("own", r"^round 3: the message to worker 2, on rank 0: .*11 bytes"),
        (
            "all",
            r"^round 3: the broadcast, on rank 0: MARINAP: 1 bytes for all where each worker has",
        ),
    ],
)
def test_what_cannot_be_a_message_is_refused_by_name(what, said):
    problem = mpicomp.Quadratics(d=12, noise=0.5, lam=0.1)
    for rounds in (4, 9):  # that round is the last, or others follow
        with pytest.raises(MpicompError, match=said):
            method = MARINAP(PermK(), gamma=0.05, p=1e-9)
            mpicomp.run(method, problem, workers=4, rounds=rounds, transport=Cutting(what))


def test_a_broadcast_with_bytes_is_none_where_each_worker_has_its_own():
    method = MARINAP(PermK(), gamma=0.1, p=1e-9)
    with pytest.raises(MessageError, match="3 bytes for all"):
        method.replica_step(method.replica(np.zeros(4)), Message(np.zeros(3, np.uint8)), Key(0, 1, None, 2))


def test_a_step_that_does_not_fit_its_format_is_named():
    """Gradients go up in f8; the steps that go down do not fit f4."""
    problem = replace(squares(4, 8, seed=1), start=np.full(8, 1e30))
    method = MARINAP(PermK(), gamma=1e12, p=1e-9, sync=WHOLE)
    with pytest.raises(
        DivergedError, match=r"^round 0: .*The step size may be too large: gamma=1000000000000\.0"
    ):
        mpicomp.run(method, problem, workers=4, rounds=5)


# --- what is refused ---


def test_servers_that_make_no_message_for_each_worker_are_refused():
    problem = mpicomp.Quadratics(d=12, lam=0.1)
    for server, more in (("sharded", {"blocks": 3}), ("allreduce", {})):
        said = rf"^MARINAP sends each worker a message of its own.*server='{server}' has none: use server="
        with pytest.raises(ConfigError, match=said):
            mpicomp.run(MARINAP(PermK(), gamma=0.1), problem, workers=4, rounds=2, server=server, **more)


def test_an_aggregator_is_refused_and_a_descent_takes_a_function():
    with pytest.raises(ConfigError, match=r"MARINAP chooses the points .*mpicomp\.Descent"):
        mpicomp.Aggregator(MARINAP(PermK()), like=np.zeros(4))
    descent = mpicomp.Descent(MARINAP(PermK(), gamma=0.1), np.zeros(4))
    with pytest.raises(ConfigError, match=r"MARINAP .*give a function"):
        descent.step(np.ones(4))


@pytest.mark.parametrize("Q", [TopK(2), Sign(), "randk", None], ids=repr)
def test_a_compressor_of_the_wrong_kind_is_refused(Q):
    with pytest.raises(ConfigError, match=r"MARINAP needs Q to be unbiased"):
        MARINAP(Q)
    with pytest.raises(ConfigError, match=r"MARINAP needs sync to be identity"):
        MARINAP(PermK(), sync=Q)
