"""M3: its transcription, MARINA-P and MARINA in it, its draws and its messages."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Identity, Natural, PermK, RandK, Sign, TopK
from mpicomp.keys import Key
from mpicomp.methods import GD, M3, MARINA, MARINAP
from tests.reference.m3 import m3
from tests.support.own_models import heard
from tests.support.trajectories import (
    EIGHTH,
    EXACT,
    PLACES,
    ROUNDS,
    UNBIASED,
    WHOLE,
    assert_close,
    assert_equal,
    codec,
    coin_of,
    gradients,
    integers,
    rounding,
    server_codec,
    start,
    trajectory,
)

PAIRS = [*zip(UNBIASED, UNBIASED[7:] + UNBIASED[:7], strict=True), (PermK(values="f8"),) * 2]


def own_codec(C, seed: int, n: int):
    """The function (i, k, v) -> C_i(v) of the message to worker i alone in round k."""

    def compress(i, k, v):
        key = Key(seed, k, i, n).named("down")
        return C.decompress(C.compress(v, key), v.size, key)

    return compress


@pytest.mark.parametrize(("problem", "n"), PLACES, ids=["d12-n4", "d13-n5", "d4-n9"])
@pytest.mark.parametrize(("Q", "Q_down"), PAIRS, ids=repr)
def test_m3_is_its_transcription(problem, n, Q, Q_down):
    """docs/methods.md, M3, x and each v_i; whole models and gradients in f8, or in f4 where others are."""
    gamma = 0.1 / problem.constants(n).L_max
    tolerance = max(rounding(Q), rounding(Q_down))
    sync = WHOLE if tolerance == 1e-12 else Identity()
    method = M3(Q, Q_down, gamma=gamma, beta=0.4, p=0.25, p_down=0.3, sync=sync)
    loop = start(method, problem, n, seed=17)
    ways = codec(sync, 17, n), codec(Q, 17, n), own_codec(Q_down, 17, n), server_codec(sync, 17, n)
    coins = coin_of("marina/coin", 17, n, 0.25), coin_of("marinap/coin", 17, n, 0.3)
    wanted, v = m3(gradients(problem, n), problem.x0(), gamma, 0.4, *ways, *coins, ROUNDS)
    iterates = [loop.x.copy()]
    for k in range(ROUNDS):
        loop.step(k)
        iterates.append(loop.x.copy())
        averages = [w.v for w in loop.workers.values()]  # each worker's is made as the next round begins
        assert np.abs(np.subtract(averages, v[k])).max() <= tolerance * np.abs(v[k]).max()
    assert_close(iterates, wanted, tolerance)
    fell = {(coins[0](k), coins[1](k)) for k in range(1, ROUNDS)}
    assert len(fell) == 4  # rounds of all four kinds occur


# --- what it is in special cases ---


class WithDrawsOfM3(MARINAP):
    """MARINA-P, whose messages to one worker alone have the draws of M3's."""

    own_key = M3.own_key


@pytest.mark.parametrize("Q_down", [PermK(), RandK(2), Natural(), PermK(values="f8")], ids=repr)
def test_without_compression_up_and_momentum_it_is_marinap(Q_down):
    """Bit for bit, by its defaults p = 1 and beta = 1; their steps are equal, too."""
    for problem, n in PLACES:
        ours = start(M3(Identity(), Q_down, p_down=0.3), problem, n, seed=6)
        assert (ours.method.p, ours.method.beta) == (1, 1)
        theirs = start(WithDrawsOfM3(Q_down, p=0.3), problem, n, seed=6)
        assert ours.method.gamma == theirs.method.gamma
        assert_equal(trajectory(ours, ROUNDS), trajectory(theirs, ROUNDS))


def test_changes_without_compression_are_marinaps_whole_gradients():
    """Exact, with p = 0.3: the sum of the changes is the gradient."""
    problem, shared = integers(4, 8), {"gamma": EIGHTH, "sync": WHOLE}
    ours = start(M3(WHOLE, PermK(values="f8"), beta=1, p=0.3, p_down=0.3, **shared), problem, 4)
    theirs = start(WithDrawsOfM3(PermK(values="f8"), p=0.3, **shared), problem, 4)
    assert_equal(trajectory(ours, EXACT), trajectory(theirs, EXACT))


@pytest.mark.parametrize("Q", [RandK(4, values="f8"), PermK(values="f8")], ids=repr)
@pytest.mark.parametrize("p_down", [1, 0.3])
def test_without_compression_down_and_momentum_it_is_marina(Q, p_down):
    """Exact: with the same coin and draws, MARINA's iterates."""
    problem, shared = integers(4, 8), {"gamma": EIGHTH, "p": 0.3, "sync": WHOLE}
    ours = start(M3(Q, WHOLE, p_down=p_down, **shared), problem, 4, seed=5)
    assert ours.method.beta == 1
    theirs = start(MARINA(Q, down=mpicomp.Lossless(), **shared), problem, 4, seed=5)
    assert_equal(trajectory(ours, EXACT), trajectory(theirs, EXACT))


def test_where_matrices_are_equal_shares_of_the_model_are_as_good_as_all_of_it():
    """Exact, with momentum: mean v_i is the average of the x, so mean ∇f_i(v_i) is ∇f there."""
    problem = integers(4, 8, same_hessian=True)
    shared = {"gamma": EIGHTH, "beta": 0.5, "p": 1.0, "p_down": 1e-9, "sync": WHOLE}
    ours, whole = (start(M3(WHOLE, C, **shared), problem, 4, seed=2) for C in (PermK(values="f8"), WHOLE))
    assert_equal(trajectory(ours, EXACT - 1), trajectory(whole, EXACT - 1))
    first, *others = (w.v for w in ours.workers.values())
    assert not any(np.array_equal(first, v) for v in others)
    plain = trajectory(start(GD(EIGHTH, values="f8"), problem, 4), EXACT - 1)
    assert not np.array_equal(plain[-1], ours.x)


def test_after_whole_gradients_the_estimate_is_their_mean():
    problem, n = PLACES[0]
    loop = start(M3(RandK(3), PermK(), gamma=0.02, p=0.3, sync=WHOLE), problem, n, seed=4)
    right = []
    for k in range(ROUNDS):
        loop.step(k)
        wanted = np.mean([problem.objective(i, n).grad(w.v) for i, w in loop.workers.items()], axis=0)
        right.append(np.allclose(loop.server.g, wanted, rtol=1e-13, atol=1e-13))
        assert right[k] == loop.method.dense(Key(4, k, None, n))
    assert right[0] and 5 < sum(right) < 30


# --- draws and messages ---


def test_what_goes_up_and_what_goes_down_are_drawn_apart():
    """PermK both ways gives worker 0 three of 12 coordinates: 3/4 of one is in both, within four standard
    errors, whose square is of a hypergeometric number, 3/4 * 3/4 * 9/11."""
    method, N = M3(PermK(), PermK(), gamma=0.1, p=1e-9, p_down=1e-9), 1000
    both, s = [], method.Server(np.ones(12), np.zeros(12), np.zeros(12))
    for k in range(N):
        key = Key(9, k + 1, 0, 4)
        down = method.worker(np.zeros(12))
        method.receive(down, method.own_message(s, None, key), key)
        up = method.Q.decompress(method.Q.compress(np.ones(12), key), 12, key)
        assert np.count_nonzero(up) == np.count_nonzero(down.w) == 3
        both.append(np.count_nonzero(up * down.w))
    assert abs(np.mean(both) - 0.75) <= 4 * sqrt(0.75 * 0.75 * 9 / 11 / N)


def test_both_coins_are_apart_and_one_for_all_ranks():
    """c = 1 and c' = 1 in shares p and p' of the rounds, and both in p p', within four standard errors."""
    method, N = M3(RandK(2), PermK(), gamma=0.1, p=0.4, p_down=0.3), 4000
    keys = [Key(8, k, None, 4) for k in range(1, N + 1)]
    up = np.array([method.dense(key) for key in keys])
    down = np.array([not method.scatters(key) for key in keys])
    assert all(method.dense(key.of(3)) == c for key, c in zip(keys[:200], up, strict=False))
    assert all(method.scatters(key.of(3)) != c for key, c in zip(keys[:200], down, strict=False))
    for falls, share in ((up, 0.4), (down, 0.3), (up & down, 0.12)):
        assert abs(np.mean(falls) - share) <= 4 * sqrt(share * (1 - share) / N)
    assert method.dense(Key(8, 0, None, 4)) and method.dense(Key(9, 0, None, 4))


def test_each_worker_is_charged_what_it_sent_and_received():
    """RandK(2) up, and PermK down: with d = 13 and n = 4 three or four numbers each; whole by the coins."""
    problem, n, T = mpicomp.Quadratics(d=13, noise=0.5, lam=0.1), 4, 40
    method = M3(RandK(2), PermK(), gamma=0.02, p=0.3, p_down=0.3)
    run, transport = heard(method, problem, n, T, seed=3)
    own = np.array([[len(m.get(i, ())) for i in range(n)] for m in transport.own[:T]])
    whole = own.sum(axis=1) == 0
    assert 3 < whole.sum() < 25 and transport.down == [4 * 13 if w else 0 for w in whole]
    assert all(sorted(row) == [12, 12, 12, 16] for row in own[~whole])
    assert run.ledger.down.tolist() == (own.sum(axis=0) + 4 * 13 * whole.sum()).tolist()
    dense = sum(method.dense(Key(3, k, None, n)) for k in range(T))
    assert run.ledger.up.tolist() == [4 * (13 * dense + 2 * (T - dense))] * n and 3 < dense < 25
    assert run.ledger.paper_bits_down == 8 * run.ledger.down_bytes


# --- what is refused ---


def test_servers_that_make_no_message_for_each_worker_are_refused():
    problem = mpicomp.Quadratics(d=12, lam=0.1)
    for server, more in (("sharded", {"blocks": 3}), ("allreduce", {})):
        said = rf"^M3 sends each worker a message of its own.*server='{server}' has none: use server="
        with pytest.raises(ConfigError, match=said):
            method = M3(RandK(2), PermK(), gamma=0.1)
            mpicomp.run(method, problem, workers=4, rounds=2, server=server, **more)


def test_an_aggregator_is_refused_and_a_descent_takes_a_function():
    with pytest.raises(ConfigError, match=r"M3 chooses the points .*mpicomp\.Descent"):
        mpicomp.Aggregator(M3(RandK(2), PermK()), like=np.zeros(4))
    descent = mpicomp.Descent(M3(RandK(2), PermK(), gamma=0.1), np.zeros(4))
    with pytest.raises(ConfigError, match=r"M3 .*give a function"):
        descent.step(np.ones(4))


@pytest.mark.parametrize("C", [TopK(2), Sign(), "randk", None], ids=repr)
def test_a_compressor_of_the_wrong_kind_is_refused(C):
    with pytest.raises(ConfigError, match=r"M3 needs Q to be unbiased"):
        M3(C, PermK())
    with pytest.raises(ConfigError, match=r"M3 needs Q_down to be unbiased"):
        M3(PermK(), C)
    with pytest.raises(ConfigError, match=r"M3 needs sync to be identity"):
        M3(RandK(2), PermK(), sync=C)


@pytest.mark.parametrize("name", ["beta", "p", "p_down"])
@pytest.mark.parametrize("value", [0, 1.5, -0.1, "theory"])
def test_shares_outside_0_to_1_are_refused(name, value):
    with pytest.raises(ConfigError, match=rf"^{name}="):
        M3(RandK(2), PermK(), **{name: value})
