"""Byz-VR-MARINA: its transcription, its special cases, its step, and runs in which some workers lie."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Lossless, Natural, PermK, RandK
from mpicomp.keys import Key
from mpicomp.methods import VRMARINA, ByzVRMARINA
from mpicomp.problems import Attacked, Quadratics
from tests.methods.test_marina import dense_for, through, whole_of
from tests.reference.byzvrmarina import byzvrmarina, clipped, in_buckets, trimmed, weiszfeld
from tests.support.finite_sums import (
    PLACES,
    SAMPLED,
    batches,
    by_hand,
    coins,
    every_place,
    gap,
    integer_sums,
    same_run,
    workers,
)
from tests.support.trajectories import (
    EIGHTH,
    EXACT,
    ROUNDS,
    WHOLE,
    assert_close,
    assert_equal,
    codec,
    grad_norm_sq,
    gradients,
    integers,
    resolved,
    rounding,
    start,
    trajectory,
)

RULES = {
    "median": lambda vectors, g: np.median(vectors, axis=0),
    "trimmed": lambda vectors, g: trimmed(vectors, 1),
    "geometric": lambda vectors, g: weiszfeld(vectors, 0.5),
    "clipping": lambda vectors, g: clipped(vectors, g, None),
    "mean": lambda vectors, g: np.mean(vectors, axis=0),
}
WAYS = [(RandK(3, values="f8"), 2, {}), (RandK(3), None, {}), (PermK(values="f8"), 0.5, {"bucket": 2})]
WAYS += [
    (Natural(values="f8"), 1, {"estimates": "common"}),
    (WHOLE, None, {"estimates": "common", "bucket": 2}),
]


def assert_transcribed(problem, method, R):
    n = workers(problem)
    sync = dense_for(method.Q)
    method = replace(method, gamma=0.05, p=0.2, sync=sync)
    wanted = byzvrmarina(
        n,
        through(sync, 41, n, whole_of(problem)),
        whole_of(problem) if method.batch is None else batches(problem, 41, method.batch),
        problem.x0(),
        0.05,
        codec(method.Q, 41, n),
        coins("marina/coin", 41, n, 0.2),
        ROUNDS,
        R,
        method.estimates == "common",
    )
    assert_close(trajectory(start(method, problem, n, seed=41), ROUNDS), wanted, rounding(method.Q))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("Q", "b", "way"), WAYS, ids=str)
def test_byzvrmarina_is_its_transcription(rule, Q, b, way):
    """docs/methods.md, ByzVRMARINA.  Five workers, so that the last bucket of two has one."""
    problem, n = PLACES[1], 5
    method = ByzVRMARINA(Q, b, rule=rule, nu=0.5, **way)

    def R(vectors, g, k):
        if method.bucket > 1:
            order = Key(41, k, None, n).shared("byzvrmarina/buckets").permutation(n, 0, n).tolist()
            vectors = in_buckets(vectors, order, method.bucket)
        return RULES[rule](vectors, g)

    assert_transcribed(problem, method, R)


def test_a_radius_of_ones_own_is_transcribed():
    method = ByzVRMARINA(RandK(3, values="f8"), 2, rule="clipping", radius=0.3)
    assert_transcribed(PLACES[1], method, lambda vectors, g, k: clipped(vectors, g, 0.3))


# --- what it is in special cases ---


@every_place
@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural(), WHOLE], ids=repr)
@pytest.mark.parametrize("estimates", ["own", "common"])
def test_with_the_mean_it_is_vrmarina(problem, Q, estimates):
    """Exact, bytes too.  docs/methods.md, ByzVRMARINA: rule="mean" without buckets."""
    n = workers(problem)
    for options in ({"gamma": 0.1, "p": 0.2, "batch": 2}, {"batch": None}):
        mine = ByzVRMARINA(Q, rule="mean", estimates=estimates, **options)
        assert same_run(mine, VRMARINA(Q, **options), problem, n)
    assert not same_run(replace(mine, rule="median", gamma=0.1), VRMARINA(Q, None, 0.1), problem, n)


@pytest.mark.parametrize("estimates", ["own", "common"])
@pytest.mark.parametrize("rule", ["mean", "trimmed"])
def test_on_integers_a_mean_of_buckets_is_vrmarina(rule, estimates):
    """Exact: means of buckets of 2 of 4 workers, and trimmed by nobody, in binary fractions."""
    problem, n = integer_sums(4, 4, 8), 4
    for Q in (WHOLE, RandK(4, values="f8")):
        options = {"gamma": EIGHTH, "p": 0.4, "sync": WHOLE}
        mine = ByzVRMARINA(Q, 2, rule=rule, liars=0, bucket=2, estimates=estimates, **options)
        runs = [trajectory(start(m, problem, n, seed=8), 4) for m in (mine, VRMARINA(Q, 2, **options))]
        assert_equal(*runs)


def test_means_of_equal_buckets_are_vrmarina_to_rounding():
    problem, n = PLACES[2], 9
    mine = ByzVRMARINA(RandK(2, values="f8"), 2, 0.05, 0.2, "mean", bucket=3, sync=WHOLE)
    other = VRMARINA(RandK(2, values="f8"), 2, 0.05, 0.2, sync=WHOLE)
    runs = [trajectory(start(m, problem, n, seed=3), ROUNDS) for m in (mine, other)]
    assert_close(*runs, 1e-12)


@pytest.mark.parametrize("attack", ["sign_flip", "ipm", "alie"])
@pytest.mark.parametrize("rule", ["median", "trimmed"])
def test_where_all_honest_workers_agree_lies_change_nothing(rule, attack):
    """Exact: identical f_i, integer data, 4 honest workers and 3 liars; no compression: the iterates of GD.
    The mean of the same messages goes elsewhere."""
    problem = Attacked(integers(4, 8, identical=True), 3, attack, 10.0)
    method = ByzVRMARINA(WHOLE, None, EIGHTH, 0.4, rule, liars=3, sync=WHOLE)
    gd = trajectory(start(mpicomp.GD(EIGHTH, values="f8"), problem.problem, 4), EXACT)
    assert_equal(trajectory(start(method, problem, 7), EXACT), gd)
    mean = trajectory(start(replace(method, rule="mean"), problem, 7), EXACT)
    # Equal gradients have no deviation to hide in: a little is enough says the truth there.
    assert (np.abs(np.subtract(mean, gd)).max() < 1e-14) == (attack == "alie")


@pytest.mark.parametrize("attack", ["sign_flip", "ipm"])
@pytest.mark.parametrize("rule", [*RULES])
@pytest.mark.parametrize("bucket", [1, 2])
def test_robust_rules_converge_where_the_mean_diverges(rule, bucket, attack):
    """docs/methods.md, ByzVRMARINA: 13 honest workers that share an optimum, 3 that lie in real messages.
    -8 times the gradients of 3 outweigh those of 13."""
    inner = Quadratics(d=12, noise=0.0, lam=0.5)
    problem = Attacked(inner, 3, attack, 8.0)
    method = ByzVRMARINA(RandK(3), None, 0.1, 0.2, rule, 3, bucket)
    iterates = trajectory(start(method, problem, 16), 80)
    first, last = (grad_norm_sq(inner, 13, x) for x in (iterates[0], iterates[-1]))
    assert last > 100 * first if rule == "mean" else last < 1e-3 * first


# --- state, bytes, limits ---


@pytest.mark.parametrize("rule", RULES)
def test_the_server_keeps_n_d_numbers_or_none(rule):
    problem, n = PLACES[1], 5
    for estimates in ("own", "common"):
        for bucket in (1, 2):
            loop = start(ByzVRMARINA(RandK(3), None, 0.05, 0.2, rule, 1, bucket, estimates), problem, n)
            kept = estimates == "own" and (rule != "mean" or bucket > 1)
            assert loop.server.g.shape == (n if kept else 0, 13)
            loop.step(0)
            if kept:
                sent = [grad(problem.x0()).astype("f4") for grad in gradients(problem, n)]
                assert np.array_equal(loop.server.g, sent)


def test_bytes_up_are_vrmarinas_and_down_come_d_numbers():
    problem, n, rounds = PLACES[1], 5, 30
    options = {"batch": 2, "gamma": 0.05, "p": 0.2, "down": Lossless("f4")}
    mine, other = (
        mpicomp.run(m, problem, workers=n, rounds=rounds, seed=5)
        for m in (ByzVRMARINA(RandK(3), rule="geometric", **options), VRMARINA(RandK(3), **options))
    )
    assert np.array_equal(mine.ledger.up, other.ledger.up)
    assert mine.ledger.down.tolist() == [rounds * Lossless("f4").most_nbytes(13)] * n
    assert other.ledger.down[0] < mine.ledger.down[0]


def test_medians_of_a_common_base_do_not_move_between_dense_rounds():
    """Exact.  RandK(2) tells of 2 coordinates of 12, so most g_i are g there; their own g_i do move it."""
    problem, n = PLACES[0], 4
    moved = {}
    for estimates in ("own", "common"):
        loop = start(ByzVRMARINA(RandK(2), None, 0.05, 1e-9, "median", estimates=estimates), problem, n)
        loop.step(0)
        g = loop.replica.g.copy()
        loop.step(1)
        moved[estimates] = np.count_nonzero(loop.replica.g != g)
    assert moved["own"] > 3 * moved["common"]


@pytest.mark.parametrize("rule", ["geometric", "clipping"])
def test_rules_of_distances_are_not_served_in_blocks(rule):
    method = ByzVRMARINA(RandK(3), None, 0.05, 0.2, rule)
    with pytest.raises(ConfigError, match=rf"rule='{rule}' takes distances .* rule='median' or 'trimmed'"):
        mpicomp.run(method, PLACES[1], workers=5, rounds=2, server="sharded", blocks=2)


@pytest.mark.parametrize(("n", "liars", "bucket"), [(2, 1, 1), (6, 3, 1), (6, 2, 2), (5, 2, 2), (1, 1, 1)])
def test_too_many_liars_are_refused(n, liars, bucket):
    method = ByzVRMARINA(RandK(1), None, 0.1, 0.5, "median", liars, bucket)
    with pytest.raises(
        ConfigError, match=rf"liars={liars} of {n} workers in .* fewer than half of the buckets"
    ):
        resolved(method, 5, n)
    mpicomp.run(replace(method, rule="mean"), Quadratics(d=5), workers=n, rounds=1)
    mpicomp.run(replace(method, liars=0), Quadratics(d=5), workers=n, rounds=1)


def test_too_many_liars_among_those_that_are_left_are_refused():
    """Two of five; then a worker's rank is lost."""
    method, x = resolved(ByzVRMARINA(RandK(1), None, 0.1, 0.5, "median", 2), 5, 5), np.zeros(5)
    server, replica = method.server(x), method.replica(x)
    method.server_step(server, replica, Key(0, 1, None, 5))
    with pytest.raises(ConfigError, match="liars=2 of 4 workers"):
        method.server_step(server, replica, Key(0, 1, None, 4))


WRONG = [
    ("rule", "krum"),
    ("liars", -1),
    ("liars", 0.2),
    ("liars", True),
    ("bucket", 0),
    ("nu", 0),
    ("nu", True),
]
WRONG += [("nu", np.inf), ("radius", -1.0), ("radius", "far"), ("estimates", "mine"), ("batch", 0)]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_what_is_no_parameter_is_refused(name, value):
    with pytest.raises(ConfigError, match=f"{name}="):
        replace(ByzVRMARINA(RandK(3)), **{name: value})


@pytest.mark.parametrize("rule", ["median", "mean"])
def test_rules_need_more_than_a_sum(rule):
    method = ByzVRMARINA(WHOLE, None, 0.05, 0.2, rule, sync=WHOLE)
    with pytest.raises(ConfigError, match=r"this ByzVRMARINA sends something else"):
        mpicomp.run(method, PLACES[1], workers=5, rounds=2, server="allreduce")


def test_messages_cannot_be_forwarded():
    with pytest.raises(ConfigError, match="does not send the mean of the workers' messages"):
        ByzVRMARINA(RandK(3), down=Lossless(forward=True))


# --- the step ---


@by_hand
@pytest.mark.parametrize(("rule", "kappa"), [("median", 4 / 2), ("trimmed", 1 / 2), ("mean", 0)])
def test_steps(Q, omega, A, B, rule, kappa):
    """docs/methods.md, ByzVRMARINA, for n = 4 of whom 1 may lie."""
    n, p, G = 4, 0.15, 4 if rule == "mean" else 3
    for batch, noise in ((None, 0), (5, 36 / 5)):
        own = omega * 3.5**2 + (1 + omega) * noise
        joint = (A * n / G - B) * 3.5**2 + B * 1.25**2 + (A * n + 1 - B) * noise / G
        wanted = 1 / (3 + sqrt((1 - p) / p) * (sqrt(2 * kappa * own) + sqrt(joint)))
        assert resolved(ByzVRMARINA(Q, batch, p=p, rule=rule), 12, n, SAMPLED).gamma == pytest.approx(wanted)
        plain = resolved(VRMARINA(Q, batch, p=p), 12, n, SAMPLED).gamma
        for nobody in ("mean", "trimmed"):
            mine = resolved(ByzVRMARINA(Q, batch, p=p, rule=nobody, liars=0), 12, n, SAMPLED).gamma
            assert mine == pytest.approx(plain)
    assert resolved(ByzVRMARINA(Q, 5), 12, n, SAMPLED).p == resolved(VRMARINA(Q, 5), 12, n, SAMPLED).p


@pytest.mark.parametrize(
    "options",
    [
        *({"rule": "geometric"}, {"rule": "clipping"}, {"rule": "mean", "bucket": 2}),
        *({"bucket": 2, "liars": 0}, {"estimates": "common"}),
    ],
    ids=str,
)
def test_other_rules_have_no_step_of_theory(options):
    with pytest.raises(ConfigError, match=r"has no theory step size: give gamma as a number, or take rule="):
        resolved(ByzVRMARINA(RandK(3), **options), 12, 4, SAMPLED)


@pytest.mark.parametrize("attack", ["sign_flip", "ipm", "alie"])
@pytest.mark.parametrize("rule", ["median", "trimmed"])
def test_the_bound_of_its_docstring_holds(rule, attack):
    """docs/methods.md, ByzVRMARINA: (1/T) sum |grad f(x)|^2 <= 2 Delta_0/(gamma T) + (2 kappa + sqrt(2 kappa
    M/W)) zeta^2, zeta^2 the largest mean |grad f_i - grad f|^2 on the way.  Mean of 4 seeds; no slack."""
    inner, honest, n, T = Quadratics(d=13, noise=0.3, lam=0.1), 7, 9, 100
    problem = Attacked(inner, 2, attack, 3.0)
    Q = RandK(4)
    method = ByzVRMARINA(Q, rule=rule, liars=2)
    solved = start(method, problem, n).method
    kappa, c = (9 if rule == "median" else 2) / 5, inner.constants(honest)
    W, M = Q.omega(13, n) * c.L_plus**2, Q.omega(13, n) / honest * c.L_plus**2
    assert solved.gamma == pytest.approx(
        1 / (c.L + sqrt((1 - solved.p) / solved.p) * (sqrt(2 * kappa * W) + sqrt(M)))
    )
    seen, spread = [], 0.0
    for seed in range(4):
        for x in trajectory(start(method, problem, n, seed), T - 1):
            g = np.array([grad(x) for grad in gradients(inner, honest)])
            spread = max(spread, np.mean(np.sum((g - g.mean(axis=0)) ** 2, axis=1)))
            seen.append(np.sum(g.mean(axis=0) ** 2))
    bound = 2 * gap(inner, honest) / (solved.gamma * T) + (2 * kappa + sqrt(2 * kappa * M / W)) * spread
    assert np.mean(seen) <= bound
