"""2Direction: its rates, its coin, its bytes, and the accelerated descent that it is."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Identity, Natural, PermK, RandK, Shrunk, Sign, TopK
from mpicomp.keys import Key
from mpicomp.methods import TwoDirection
from tests.reference.twodirection import twodirection
from tests.support.trajectories import (
    HAND,
    PLACES,
    ROUNDS,
    WHOLE,
    assert_close,
    assert_mean,
    at_optimum,
    coin_of,
    every_pair,
    every_place,
    gradients,
    mean_gradient,
    named_codec,
    resolved,
    rounding,
    server_codec,
    squares,
    start,
    trajectory,
)

# --- the transcription ---

# Round 0 sends grad f_i(x^0); the paper's round k is our round k+1, drawn with its key, but that the messages
# "z" travel in round k+2.


@every_place
@every_pair
@pytest.mark.parametrize("mu", ["theory", 0])
def test_twodirection_is_its_transcription(problem, n, Q, C, mu):
    """docs/methods.md, TwoDirection, both z, which the run reports, and w; the
    dense messages in f8 where the others are."""
    d, p, tau = problem.dimension(), 0.3, 0.6
    tolerance = max(rounding(Q), rounding(C))
    dense = WHOLE if tolerance == 1e-12 else Identity()
    Lbar = 4 * problem.constants(n).L_max
    loop = start(TwoDirection(C, Q, Lbar=Lbar, mu=mu, p=p, tau=tau, dense=dense), problem, n, seed=24)
    coin = coin_of("twodirection/coin", 24, n, p, 1)
    assert 5 < sum(coin(k) for k in range(ROUNDS)) < 30
    through = server_codec(dense, 24, n)
    zs, ws = twodirection(
        gradients(problem, n),
        problem.x0(),
        Lbar,
        loop.method.mu,
        p,
        tau,
        loop.method.beta,
        C.alpha(d, n),
        named_codec(Q, 24, n, {"y": 1, "z": 2}),
        server_codec(C, 24, n, 1),
        lambda v: through(0, v),
        coin,
        ROUNDS,
    )
    got = trajectory(loop, ROUNDS + 1)
    assert np.array_equal(got[0], got[1])
    assert_close(got[1:], zs, tolerance)
    assert np.abs(loop.replica.w - ws[-1]).max() <= tolerance * np.abs(ws).max()


# --- what holds in every round ---


def test_twodirection_without_compression_is_accelerated_gradient_descent():
    """docs/methods.md, TwoDirection: identity, p = tau = beta = 1 => w = u, z = x,
    theta <= 1/4, g = grad f(y)."""
    problem = squares(4, 8, seed=31)
    L = problem.constants(4).L
    loop = start(TwoDirection(WHOLE, WHOLE, Lbar=L, p=1, tau=1, dense=WHOLE), problem, 4)
    assert (loop.method.beta, loop.method.p) == (1, 1)
    loop.step(0)
    for k in range(1, 60):
        r = loop.replica
        z, u = r.z.copy(), loop.server.u.copy()
        plan = loop.method._plan(r, 4)
        assert 0 < plan.theta <= 1 / 4
        loop.step(k)
        gradient = mean_gradient(problem, 4, plan.y)
        wanted = (plan.A * u + loop.method.mu * plan.y - gradient) / (plan.A + loop.method.mu)
        assert np.abs(loop.server.u - wanted).max() < 1e-13
        assert np.abs(loop.server.u - r.w).max() < 1e-14
        assert np.abs(r.z - (plan.theta * r.w + (1 - plan.theta) * z)).max() < 1e-14
    assert np.sum((r.z - problem.x_star) ** 2) < 1e-3 * np.sum((problem.x0() - problem.x_star) ** 2)


@every_pair
def test_twodirection_keeps_h_the_mean_of_h_i(Q, C):
    """docs/methods.md, TwoDirection; between rounds the workers have taken in as much as the server."""
    problem, n = PLACES[0]
    loop = start(TwoDirection(C, Q, Lbar=10.0), problem, n)
    for k in range(30):
        loop.step(k)
        assert_mean(loop.server.h, loop, "h")


@every_pair
@pytest.mark.parametrize("mu", [0.5, 0])
def test_twodirection_stays_at_the_optimum(Q, C, mu):
    """docs/methods.md, TwoDirection: x0 = x*, where h_i = grad f_i(x*) and k = v = 0 come of round 0, data
    being integers.

    Where mu > 0, (A w + mu y)/(A + mu) = w to rounding only, which the messages then carry on."""
    problem = at_optimum()
    loop = start(TwoDirection(C, Q, Lbar=8.0, mu=mu, p=0.4), problem, 4)
    loop.step(0)
    assert not loop.replica.k.any() and not loop.server.v.any()
    assert all(w.h.any() for w in loop.workers.values())
    for k in range(1, 40):
        loop.step(k)
        for state in (loop.replica.w, loop.replica.z, loop.server.u):
            assert np.abs(state - problem.start).max() <= 1e-13
        assert np.abs(loop.server.v).max() <= 1e-12


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_twodirection_coin_is_common(seed):
    """Every worker's key, and the server's, give one coin; and z moves in the rounds it says, only."""
    problem, n = PLACES[0]
    loop = start(TwoDirection(TopK(3), RandK(3), Lbar=10.0, p=0.3), problem, n, seed)
    syncs = []
    for k in range(40):
        key, z = Key(seed, k, None, n), loop.replica.z.copy()
        coins = {loop.method._syncs(key.of(i)) for i in range(n)} | {loop.method._syncs(key)}
        assert len(coins) == 1
        loop.step(k)
        assert (not np.array_equal(z, loop.replica.z)) == (k > 0 and coins == {True})
        syncs.append(coins == {True})
    assert 4 < sum(syncs) < 25


@pytest.mark.parametrize("dense", [Identity(), WHOLE], ids=repr)
def test_twodirection_bytes(dense):
    """Up: dense once, one message in round 1, two from then on.  Down: dense once, P, and 2d at a sync."""
    problem, n = PLACES[0]
    loop = start(TwoDirection(TopK(3), RandK(3), Lbar=10.0, p=0.3, dense=dense), problem, n)
    whole, key = dense.mean_nbytes(12, n), Key(0, 0, None, n)
    for k in range(20):
        before = loop.ledger.up[0], loop.ledger.down.copy(), loop.ledger.paper_bits_up
        charged_before = loop.ledger.paper_bits_down
        loop.step(k)
        up, down = loop.ledger.up[0] - before[0], loop.ledger.down - before[1]
        charged = (loop.ledger.paper_bits_up - before[2]) / n
        charged_down = (loop.ledger.paper_bits_down - charged_before) / n
        sync = loop.method._syncs(replace(key, round=k))
        if k == 0:
            assert charged == charged_down == 12 * 32
            assert whole <= up <= whole + 8 and np.all((whole <= down) & (down <= whole + 8))
        else:
            assert charged == 3 * 32 * min(k, 2)
            assert charged_down == 3 * 32 + 2 * 12 * 32 * sync
            assert 12 * min(k, 2) <= up <= 12 * min(k, 2) + 8
            wanted = 13 + 2 * whole * sync
            assert np.all((wanted <= down) & (down <= wanted + 8))


# --- rates ---


@pytest.mark.parametrize("mu", [0, 1e-3, 0.5])
@pytest.mark.parametrize("p", [1.0, 0.1])
@pytest.mark.parametrize("tau", [1.0, 0.02])
def test_twodirection_rates(mu, p, tau):
    """docs/methods.md, TwoDirection: Gamma+ (1 - p theta) = Gamma; Lbar theta gamma
    <= Lbar + Gamma mu, with equality where theta is below its cap."""
    method = resolved(TwoDirection(TopK(3), RandK(3), Lbar=7.0, mu=mu, p=p, tau=tau), 12, 4)
    alpha = beta = 1 / 4
    cap = min(1, alpha / p, tau / p, beta / p) / 4
    replica = method.replica(np.ones(12))
    for Gamma in 1.5 ** np.arange(40):
        replica.Gamma = float(Gamma)
        plan = method._plan(replica, 4)
        gamma = plan.Gamma - Gamma
        curvature = 7 + Gamma * mu
        assert plan.Gamma * (1 - p * plan.theta) == pytest.approx(Gamma, rel=1e-12)
        assert gamma * plan.A == pytest.approx(curvature, rel=1e-9)
        assert 0 < plan.theta <= cap
        capped = plan.theta == cap
        assert 7 * plan.theta * gamma <= curvature * (1 + 1e-9)
        assert capped or 7 * plan.theta * gamma == pytest.approx(curvature, rel=1e-9)


def test_twodirection_uncapped_rates_occur():
    """The equality above is tested: with mu = 0 theta falls below its cap, as Gamma grows."""
    method = resolved(TwoDirection(TopK(3), RandK(3), Lbar=7.0, mu=0, p=1.0, tau=1.0), 12, 4)
    replica = method.replica(np.ones(12))
    assert method._plan(replica, 4).theta == 1 / 16
    replica.Gamma = 1e4
    assert method._plan(replica, 4).theta == pytest.approx((sqrt(1 + 4e4) - 1) / 2e4)


@pytest.mark.parametrize("mu", [0, 0.1, 10.0])
def test_twodirection_gamma_never_overflows(mu):
    """docs/methods.md, TwoDirection, numerics: 20,000 rounds, and everything stays
    finite and as the ratio says."""
    method = resolved(TwoDirection(Identity(), Identity(), Lbar=1.0, mu=mu, p=0.5), 1, 4)
    replica = method.replica(np.ones(1))
    with np.errstate(all="raise"):
        for _ in range(20_000):
            plan = method._plan(replica, 4)
            replica.Gamma = plan.Gamma
    assert 1e4 < replica.Gamma < 1e12
    assert np.isfinite([plan.A, plan.theta, *plan.q]).all()
    if mu:
        step = 0.5 * plan.theta
        assert plan.A == pytest.approx(mu * (1 - step) / step, rel=1e-6)


# --- step sizes, and the way to the optimum ---


@pytest.mark.parametrize(
    ("C", "alpha", "Q", "omega"),
    [
        (TopK(3), 1 / 4, RandK(3), 3),
        (Sign(), 1 / 12, Natural(), 1 / 8),
        (Identity(), 1, RandK(1), 11),
        (TopK(3), 1 / 4, Identity(), 0),
        (TopK(3), 1 / 4, RandK(3, mask="shared"), 3),
        (Identity(), 1, RandK(1, mask="shared"), 11),
        (Sign(), 1 / 12, PermK(), 3),
    ],
    ids=lambda v: repr(v) if hasattr(v, "compress") else "",
)
@pytest.mark.parametrize(("p", "tau"), [(0.25, 0.25), (1.0, 0.1), (0.01, 1.0)])
def test_twodirection_steps(C, alpha, Q, omega, p, tau):
    """docs/methods.md, TwoDirection, with A of the AB-inequality for omega/n."""
    beta, n, L, L_max = 1 / (1 + omega), 4, 3, 5
    A = {PermK(): 1, RandK(3, mask="shared"): 3, RandK(1, mask="shared"): 11}.get(Q, omega / n)
    terms = [
        L / alpha,
        L * p / (alpha * tau),
        sqrt(L * L_max) * p * sqrt(A * tau) / (alpha * beta),
        sqrt(L * L_max) * sqrt(p) * sqrt(A * tau) / (alpha * sqrt(beta)),
        L_max * A * p**2 / beta**2,
        L_max * A,
    ]
    method = resolved(TwoDirection(C, Q, p=p, tau=tau), 12, n)
    assert method.beta == pytest.approx(beta)
    assert (method.Lbar, method.mu) == (pytest.approx(660508 * max(terms)), 0.1)
    scaled = resolved(TwoDirection(C, Q, "theory*0.001", p=p, tau=tau), 12, n, replace(HAND, mu=0.0))
    assert (scaled.Lbar, scaled.mu) == (pytest.approx(660.508 * max(terms)), 0)


@pytest.mark.parametrize(
    ("C", "Q", "r", "p", "tau"),
    [
        # d = 12: 48 bytes dense, RandK(3) 12, TopK(3) 12 and C(12, 3) = 220 supports in one byte.
        (TopK(3), RandK(3), 0.5, 1 / 4, 1 / 4),  # 1/rho = 12.5/24 = 0.52
        (TopK(3), RandK(3), 0.9, (0.1 * 12 + 0.9 * 13) / (0.9 * 48), None),  # 0.2986 > 1/4
        (Identity(), RandK(3), 1.0, 1 / 4, 1 / 4),  # rho = 1
        (TopK(1), RandK(3), 1.0, 5 / 48, None),  # a value and one byte
    ],
)
def test_twodirection_default_p_and_tau(C, Q, r, p, tau):
    """docs/methods.md, TwoDirection: p = min{1/(1+omega), 1/rho}, tau = p^{1/3}/(1+omega)^{2/3}, in bytes."""
    method = resolved(TwoDirection(C, Q, r=r), 12, 4)
    p = min(p, 1 / 4)
    assert method.p == pytest.approx(p)
    assert method.tau == pytest.approx(tau or p ** (1 / 3) / 4 ** (2 / 3))
    assert resolved(TwoDirection(C, Q, r=r, p=0.5), 12, 4).tau == pytest.approx(0.5 ** (1 / 3) / 4 ** (2 / 3))


@pytest.mark.parametrize("r", [-0.5, 1.5, float("nan"), "half"])
def test_twodirection_weight_of_the_downlink_is_checked(r):
    with pytest.raises(ConfigError, match="r="):
        TwoDirection(TopK(3), RandK(3), r=r)


def test_twodirection_downlink_may_cost_nothing():
    """r = 0: rho = 0, and p = 1/(1 + omega)."""
    assert resolved(TwoDirection(TopK(3), RandK(3), r=0.0), 12, 4).p == pytest.approx(1 / 4)


@pytest.mark.parametrize(
    ("Q", "C"), [(RandK(4), TopK(4)), (PermK(), Identity()), (Natural(), Shrunk(RandK(4)))], ids=repr
)
def test_twodirection_converges_linearly(C, Q):
    """docs/methods.md, TwoDirection: with Lbar = 16 L in place of the theory's."""
    problem = squares(4, 8, seed=31)
    L = problem.constants(4).L
    loop = start(TwoDirection(C, Q, Lbar=16 * L, dense=WHOLE), problem, 4, seed=1)
    errors = [np.sum((z - problem.x_star) ** 2) for z in trajectory(loop, 900)[::300]]
    assert all(new < 0.2 * old or new < 1e-16 for old, new in pairwise(errors)), errors
