"""ADIANA, with both sets of parameters, and whatever it sends down."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from math import prod, sqrt

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Identity, Lazy, Lossless, Natural, PermK, RandK
from mpicomp.keys import Key
from mpicomp.methods import ADIANA
from mpicomp.methods.adiana import PARAMETERS
from mpicomp.problems.constants import Constants
from tests.reference.adiana import adiana, convex, original, refined
from tests.support.trajectories import (
    BY_HAND,
    EIGHTH,
    HAND,
    PLACES,
    ROUNDS,
    WHOLE,
    assert_close,
    assert_mean,
    at_optimum,
    coin_of,
    every_place,
    every_uplink,
    gradients,
    integers,
    mean_gradient,
    named_codec,
    resolved,
    rounding,
    squares,
    start,
    trajectory,
)

# --- the transcription ---

# Rounds are numbered as in the paper: round k draws with ``Key(seed, k, i, n)``, the messages named "m" and
# "c" and the coin alike.


@every_place
@every_uplink
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_adiana_is_its_transcription(problem, n, Q, parameters):
    """docs/methods.md, ADIANA, each set of parameters."""
    d = problem.dimension()
    p, eta, mu = 0.2, 0.2 / problem.constants(n).L_max, problem.constants(n).mu
    loop = start(ADIANA(Q, eta=eta, p=p, parameters=parameters), problem, n, seed=21)
    omega = Q.omega(d, n)
    assert loop.method.mu == (0 if parameters == "convex" else mu)
    if parameters == "original":

        def weights(k):
            return original(eta, mu, p)

    elif parameters == "convex":

        def weights(k):
            return convex(eta, p, omega, k)

    else:
        independent = omega / Q.ab(d, n)[0] if omega else n  # as many would have the variance of these
        # The L whose eta = n theta2 / (120 omega L) this one is.
        L = independent / (120 * (3 * sqrt(independent) * omega + 3 * independent) * eta)

        def weights(k):
            return refined(eta, mu, L, omega, independent)

    compress, coin = named_codec(Q, 21, n, {"m": 0, "c": 0}), coin_of("adiana/coin", 21, n, p)
    assert 3 < sum(coin(k) for k in range(ROUNDS)) < ROUNDS / 2
    alpha = loop.method.alpha
    wanted = adiana(gradients(problem, n), problem.x0(), eta, alpha, weights, compress, coin, ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))


# --- what holds in every round ---


def test_adiana_without_compression_steps_along_the_gradient():
    """docs/methods.md, ADIANA: identity => y^{k+1} = x^k - eta grad f(x^k) whatever the
    shifts; alpha = 1 => h_i = grad f_i(w), exactly where data and x0 are dyadic (round 0)."""
    problem = integers(4, 8)
    loop = start(ADIANA(WHOLE, eta=EIGHTH, mu=0.5, p=0.5), problem, 4)
    assert loop.method.alpha == 1
    moves = 0
    for k in range(20):
        r = loop.replica
        x, w = r.x.copy(), r.w.copy()
        loop.step(k)
        wanted = x - EIGHTH * mean_gradient(problem, 4, x)
        assert np.abs(r.y - wanted).max() <= 1e-13 * np.abs(wanted).max()
        for i, state in loop.workers.items():
            limit = problem.objective(i, 4).grad(w)
            assert np.abs(state.h - limit).max() <= 1e-13 * np.abs(limit).max()
            assert np.array_equal(state.h, limit) or k
        moves += not np.array_equal(w, r.w)
    assert 3 < moves < 17


@every_uplink
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_adiana_keeps_h_the_mean_of_h_i(Q, parameters):
    problem, n = PLACES[0]
    loop = start(ADIANA(Q, parameters=parameters), problem, n)
    for k in range(ROUNDS):
        loop.step(k)
        assert_mean(loop.replica.h, loop, "h")
    assert loop.replica.h.any()


@every_uplink
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_adiana_stays_at_the_optimum(Q, parameters):
    """docs/methods.md, ADIANA.  Messages are C(0) = 0; the weights sum to 1 only to rounding."""
    problem = at_optimum()
    loop = start(ADIANA(Q, parameters=parameters), problem, 4)
    for i, w in loop.workers.items():
        w.h[:] = problem.objective(i, 4).grad(problem.start)
        assert w.h.any()
    for y in trajectory(loop, 30):
        assert np.abs(y - problem.start).max() < 1e-14 * 4 * np.abs(problem.start).max()


def test_adiana_draws_its_two_messages_independently():
    """In round 0 x = w = x0 and h_i = 0: the same vector twice, with different supports."""
    problem, n = PLACES[0]
    loop = start(ADIANA(RandK(3, values="f8")), problem, n)
    key = Key(0, 0, 1, n)
    up = loop.method.worker_step(loop.workers[1], loop.replica, loop.objectives[1], key)
    Q = loop.method.Q
    m, c = Q.decompress(up.m, 12, key.named("m")), Q.decompress(up.c, 12, key.named("c"))
    assert set(np.flatnonzero(m)) != set(np.flatnonzero(c))
    for sent in (m, c):
        at = np.flatnonzero(sent)
        assert at.size == 3
        assert np.allclose(sent[at], 4 * problem.objective(1, n).grad(problem.x0())[at])


# --- step sizes, and the way to the optimum ---


@pytest.mark.parametrize(("Q", "omega", "A"), BY_HAND, ids=lambda v: repr(v) if hasattr(v, "omega") else "")
def test_adiana_steps(Q, omega, A):
    """docs/methods.md, ADIANA, with n A for omega in (a) where that is a matter of
    averaging, omega/A for n in (b)."""
    d, n, effective = 12, 4, 4 * A
    p = min(1, max(1, sqrt(n / (32 * effective)) - 1) / (2 * (1 + omega)))
    eta = min(1 / (2 * 5), n / (64 * effective * (2 * p * (omega + 1) + 1) ** 2 * 5))
    method = resolved(ADIANA(Q), d, n)
    assert (method.p, method.alpha) == (pytest.approx(p), pytest.approx(1 / (1 + omega)))
    assert (method.eta, method.mu) == (pytest.approx(eta), 0.1)
    theta1 = min(1 / 4, sqrt(eta * 0.1 / p))
    gamma = eta / (2 * (theta1 + eta * 0.1))
    assert method.weights(n, d, 0) == pytest.approx((theta1, 1 / 2, gamma, 1 - gamma * 0.1))

    method = resolved(ADIANA(Q, parameters="refined"), d, n)
    theta2 = 1 / (3 * sqrt(omega / A) + 3 / A)
    eta, theta1 = theta2 / (120 * A * 5), sqrt(0.1 / 5) / 3
    assert method.p == method.alpha == pytest.approx(1 / (1 + omega))
    assert method.eta == pytest.approx(eta)
    gamma, beta = eta / (2 * theta1 + eta * 0.1), 2 * theta1 / (2 * theta1 + eta * 0.1)
    assert method.weights(n, d, 0) == pytest.approx((theta1, theta2, gamma, beta))


def test_adiana_steps_without_compression():
    """omega = 0: eta = 1/(2 L_max), p = 1; refined: theta2 = 0, eta = 1/(360 L_max)."""
    method = resolved(ADIANA(Identity()), 12, 4)
    assert (method.p, method.alpha, method.eta) == (1, 1, 0.1)
    method = resolved(ADIANA(Identity(), parameters="refined"), 12, 4)
    assert (method.p, method.alpha, method.eta) == (1, 1, pytest.approx(1 / 1800))
    assert method.weights(4, 12, 0)[:2] == (pytest.approx(sqrt(0.1 / 5) / 3), 0)


@pytest.mark.parametrize("parameters", ["original", "refined"])
@pytest.mark.parametrize("Q", [RandK(2, values="f8"), Natural(values="f8")], ids=repr)
def test_adiana_converges_linearly_by_theory(Q, parameters):
    """docs/methods.md, ADIANA: by a constant factor over each of equal spans of rounds, to the optimum."""
    problem, n = squares(4, 8, seed=31), 4
    loop = start(ADIANA(Q, parameters=parameters), problem, n, seed=1)
    length = 500 if parameters == "refined" else 100
    errors = [np.sum((y - problem.x_star) ** 2) for y in trajectory(loop, 3 * length)[::length]]
    assert all(new < 0.5 * old or new < 1e-20 for old, new in pairwise(errors)), errors


@pytest.mark.parametrize("parameters", ["original", "refined"])
def test_adiana_contracts_by_theory_where_no_message_is_averaged(parameters):
    """f_i = n/2 x_i^2, so that L_max = n L: exactly, the second moments of y, z, w and mean h_i in a
    coordinate fall."""
    n, q = 100, 1 / 101
    c = Constants(L=1.0, L_i=(100.0,) * n, L_plus=10.0, L_pm=10.0, mu=1e-6, convex=True)
    method = resolved(ADIANA(Lazy(q), parameters=parameters), n, n, c)
    theta1, theta2, gamma, beta = method.weights(n, n, 0)
    y, z, w, h = np.eye(4)
    x = theta1 * z + theta2 * w + (1 - theta1 - theta2) * y
    second = np.zeros((16, 16))
    for sent, shifted, moves in product((True, False), repeat=3):
        new = x - method.eta * (h + sent * (x - h) / q)
        moved = beta * z + (1 - beta) * x + gamma / method.eta * (new - x)
        linear = np.array([new, moved, y if moves else w, h + method.alpha * shifted * (w - h) / q])
        chance = prod(p if yes else 1 - p for p, yes in ((q, sent), (q, shifted), (method.p, moves)))
        second += chance * np.kron(linear, linear)
    assert np.abs(np.linalg.eigvals(second)).max() < 1


@pytest.mark.parametrize("parameters", ["original", "refined"])
def test_adiana_needs_strong_convexity(parameters):
    """Of f, by the problem or by mu as a number; and convexity of every f_i for theory's eta."""
    method = ADIANA(RandK(3), parameters=parameters)
    with pytest.raises(ConfigError, match=r"mu is None.*Give eta and mu as numbers"):
        resolved(method, 12, 4, replace(HAND, mu=None))
    with pytest.raises(ConfigError, match=r"mu above 0.*is 0: give mu as a number.*parameters='convex'"):
        resolved(method, 12, 4, replace(HAND, mu=0.0))
    with pytest.raises(ConfigError, match="some f_i is not"):
        resolved(method, 12, 4, replace(HAND, convex=False))
    given = resolved(replace(method, mu=0.01), 12, 4, replace(HAND, mu=0.0))
    assert (given.mu, given.eta) == (0.01, resolved(method, 12, 4).eta)
    assert resolved(replace(method, eta=0.3), 12, 4, replace(HAND, convex=False)).eta == 0.3
    unknown = replace(HAND, mu=None)
    with pytest.raises(ConfigError, match=r"mu is None in its constants\)\. Give eta as a number"):
        resolved(replace(method, mu=0.01), 12, 4, unknown)
    given = resolved(replace(method, eta=0.3, mu=0.01), 12, 4, unknown)
    assert (given.mu, given.eta) == (0.01, 0.3)


# --- sending its gradient estimate ---


@every_place
@pytest.mark.parametrize(
    "Q", [RandK(3, values="f8"), PermK(values="f8"), Natural(values="f8"), WHOLE, RandK(3)], ids=repr
)
def test_adiana_that_sends_the_gradient_is_the_same_method(problem, n, Q):
    """docs/methods.md, ADIANA: y^{k+1} follows from g.  The server keeps h, and it is the mean of the h_i."""
    p, eta, mu = 0.2, 0.2 / problem.constants(n).L_max, problem.constants(n).mu
    loop = start(ADIANA(Q, eta=eta, p=p, sends="gradient"), problem, n, seed=21)
    compress, coin = named_codec(Q, 21, n, {"m": 0, "c": 0}), coin_of("adiana/coin", 21, n, p)
    alpha, weights = loop.method.alpha, original(eta, mu, p)
    wanted = adiana(
        gradients(problem, n), problem.x0(), eta, alpha, lambda k: weights, compress, coin, ROUNDS
    )
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))
    assert_mean(loop.server.h, loop, "h")
    assert loop.server.h.any() and not loop.replica.h.any()


def test_adiana_downlink_bytes():
    """A dense g costs 8 d bytes, 4 d in f4, and two or three of layout and length; the two means of n = 9
    messages of one entry of d = 40 less than half of it, those of all entries twice as much."""
    problem, n, d = squares(9, 40, seed=3), 9, 40

    def down(Q, **options):
        loop = start(ADIANA(Q, eta=1e-3, **options), problem, n)
        trajectory(loop, 30)  # h has filled up
        before = loop.ledger.down[0]
        loop.step(30)
        return loop.ledger.down[0] - before

    for Q in (RandK(1), Identity()):
        assert 8 * d + 1 <= down(Q, sends="gradient") <= 8 * d + 3
        assert 4 * d + 1 <= down(Q, sends="gradient", down=Lossless("f4")) <= 4 * d + 3
    assert down(RandK(1)) < 4 * d < 16 * d < down(Identity())


def test_adiana_rounds_its_gradient_without_harm():
    """In f4 the rounding of g vanishes with g; that of mean c_i, which enters h but no h_i, stays in h."""
    problem = squares(4, 8, seed=31)

    def error(sends):
        method = ADIANA(RandK(4), eta="theory*8", sends=sends, down=Lossless("f4"))
        return np.abs(trajectory(start(method, problem, 4, seed=1), 650)[-1] - problem.x_star).max()

    assert error("gradient") < 1e-12 < 1e-8 < error("means")
