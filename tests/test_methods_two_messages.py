"""DASHA, and the methods with two messages a round: ADIANA, EF21-P + DIANA, 2Direction.

Tolerances are those of test_methods.py; what is marked "exact" holds bit for bit.

Correspondence of rounds.  ADIANA and EF21-P are numbered as in their papers: round k draws with
``Key(seed, k, i, n)``, ADIANA's messages named "m" and "c" and its coin alike.  DASHA's round k makes g^{k+1}
and then x^{k+2}: its paper's x^1 = x^0, which our run leaves out.  2Direction's round 0 sends grad f_i(x^0);
the paper's round k is our round k+1, but that its messages "z" travel in round k+2.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from mpicomp.compressors import (
    Bernoulli,
    HardThreshold,
    Identity,
    Natural,
    PermK,
    Quantized,
    RandK,
    Shrunk,
    Sign,
    Sparse,
    TopK,
)
from mpicomp.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.methods import ADIANA, DASHA, DIANA, EF21P, GD, TwoDirection
from tests.reference.adiana import adiana, original, refined
from tests.reference.dasha import dasha
from tests.reference.ef21p import ef21p
from tests.reference.twodirection import twodirection
from tests.trajectories import (
    EIGHTH,
    EXACT,
    HAND,
    L_TILDE,
    PLACES,
    ROUNDS,
    assert_close,
    assert_equal,
    codec,
    gradients,
    integers,
    mean_gradient,
    resolved,
    rounding,
    squares,
    start,
    trajectory,
)

UPLINKS = [
    RandK(3, values="f8"),
    PermK(values="f8"),
    Natural(values="f8"),
    Identity("f8"),
    RandK(3),
    Natural(),
]
WHOLE = Identity("f8")
PAIRS = [
    (RandK(3, values="f8"), TopK(2, values="f8")),
    (PermK(values="f8"), Sign(values="f8")),
    (Natural(values="f8"), Shrunk(RandK(2, values="f8"))),
    (WHOLE, TopK(2, values="f8")),
    (RandK(3, values="f8"), WHOLE),
    (Natural(), TopK(3)),
]
every_place = pytest.mark.parametrize(("problem", "n"), PLACES, ids=["d12-n4", "d13-n5", "d4-n9"])
every_uplink = pytest.mark.parametrize("Q", UPLINKS, ids=repr)
every_pair = pytest.mark.parametrize(("Q", "C"), PAIRS, ids=repr)


def named_codec(C, seed: int, n: int, shifts: dict[str, int]):
    """What the server makes of the named message of round k, which travels ``shifts[name]`` rounds later."""

    def compress(i, k, name, v):
        key = Key(seed, k + shifts[name], i, n).named(name)
        return C.decompress(C.compress(v, key), v.size, key)

    return compress


def server_codec(C, seed: int, n: int, shift: int = 0):
    """What every rank makes of the server's message."""

    def compress(k, v):
        key = Key(seed, k + shift, None, n)
        return C.decompress(C.compress(v, key), v.size, key)

    return compress


def coin_of(tag: str, seed: int, n: int, p: float, shift: int = 0):
    return lambda k: Key(seed, k + shift, None, n).shared(tag).coin(p)


def mean_of(loop, name: str) -> np.ndarray:
    return np.mean([getattr(w, name) for w in loop.workers.values()], axis=0)


def assert_mean(got: np.ndarray, loop, name: str) -> None:
    """To rounding, relative to the workers' own."""
    scale = max(np.abs(getattr(w, name)).max() for w in loop.workers.values())
    assert np.abs(got - mean_of(loop, name)).max() <= 1e-14 * scale


def at_optimum():
    """Integer data, started at x* with gradients that are not 0."""
    problem = integers(4, 8)
    return replace(problem, b=problem.A @ problem.start + (problem.b - problem.b.mean(axis=0)))


# --- the transcriptions ---


@every_place
@every_uplink
@pytest.mark.parametrize("parameters", ["original", "refined"])
def test_adiana_is_its_transcription(problem, n, Q, parameters):
    """Section 2.4, both sets of parameters."""
    d = problem.dimension()
    p, eta, mu = 0.2, 0.2 / problem.constants(n).L_max, problem.constants(n).mu
    loop = start(ADIANA(Q, eta=eta, p=p, parameters=parameters), problem, n, seed=21)
    assert loop.method.mu == mu
    if parameters == "original":
        weights = original(eta, mu, p)
    else:
        omega = Q.omega(d, n)
        # The L whose eta = n theta2 / (120 omega L) this one is.
        L = n / (120 * (3 * sqrt(n) * omega + 3 * n) * eta)
        weights = refined(eta, mu, L, omega, n)
    compress, coin = named_codec(Q, 21, n, {"m": 0, "c": 0}), coin_of("adiana/coin", 21, n, p)
    assert 3 < sum(coin(k) for k in range(ROUNDS)) < ROUNDS / 2
    alpha = loop.method.alpha
    wanted = adiana(gradients(problem, n), problem.x0(), eta, alpha, weights, compress, coin, ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))


@every_place
@every_uplink
@pytest.mark.parametrize("a", [None, 0.3])
def test_dasha_is_its_transcription(problem, n, Q, a):
    """Section 4.6, from g_i = h_i = 0."""
    loop = start(DASHA(Q, gamma="theory*4", a=a), problem, n, seed=22)
    method = loop.method
    wanted = dasha(gradients(problem, n), problem.x0(), method.gamma, method.a, codec(Q, 22, n), ROUNDS + 1)
    assert np.array_equal(wanted[0], wanted[1])
    assert_close(trajectory(loop, ROUNDS), wanted[1:], rounding(Q))


@every_place
@every_pair
def test_ef21p_is_its_transcription(problem, n, Q, C):
    """Section 6.2, both w, which the run reports, and x, which the server keeps."""
    gamma = 0.3 / problem.constants(n).L_max
    loop = start(EF21P(C, Q, gamma=gamma), problem, n, seed=23)
    shifted, iterates = ef21p(
        gradients(problem, n),
        problem.x0(),
        gamma,
        loop.method.beta,
        codec(Q, 23, n),
        server_codec(C, 23, n),
        ROUNDS,
    )
    tolerance = max(rounding(Q), rounding(C))
    assert_close(trajectory(loop, ROUNDS), shifted, tolerance)
    assert np.abs(loop.server.x - iterates[-1]).max() <= tolerance * np.abs(iterates).max()


@every_place
@every_pair
@pytest.mark.parametrize("mu", ["theory", 0])
def test_twodirection_is_its_transcription(problem, n, Q, C, mu):
    """Section 6.3, both z, which the run reports, and w; the dense messages in f8 where the others are."""
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


# --- ADIANA ---


def test_adiana_without_compression_steps_along_the_gradient():
    """Section 2.4: identity => y^{k+1} = x^k - eta grad f(x^k) whatever the shifts; alpha = 1 => h_i = grad
    f_i(w), exactly where data and x0 are dyadic (round 0)."""
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
@pytest.mark.parametrize("parameters", ["original", "refined"])
def test_adiana_keeps_h_the_mean_of_h_i(Q, parameters):
    problem, n = PLACES[0]
    loop = start(ADIANA(Q, parameters=parameters), problem, n)
    for k in range(ROUNDS):
        loop.step(k)
        assert_mean(loop.replica.h, loop, "h")
    assert loop.replica.h.any()


@every_uplink
@pytest.mark.parametrize("parameters", ["original", "refined"])
def test_adiana_stays_at_the_optimum(Q, parameters):
    """Section 2.4.  Messages are C(0) = 0; the weights sum to 1 only to rounding."""
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


# Q, omega and A by hand, for d = 12, n = 4
BY_HAND = [
    (RandK(3), 3, 3 / 4),
    (RandK(3, mask="shared"), 3, 3),
    (PermK(), 3, 1),
    (Natural(), 1 / 8, 1 / 32),
    (Quantized(RandK(3), Natural()), 7 / 2, 7 / 8),
]


@pytest.mark.parametrize(("Q", "omega", "A"), BY_HAND, ids=lambda v: repr(v) if hasattr(v, "omega") else "")
def test_adiana_steps(Q, omega, A):
    """Section 2.4 (a), with n A for omega where that is a matter of averaging, and (b)."""
    d, n, effective = 12, 4, 4 * A
    p = min(1, max(1, sqrt(n / (32 * effective)) - 1) / (2 * (1 + omega)))
    eta = min(1 / (2 * 5), n / (64 * effective * (2 * p * (omega + 1) + 1) ** 2 * 5))
    method = resolved(ADIANA(Q), d, n)
    assert (method.p, method.alpha) == (pytest.approx(p), pytest.approx(1 / (1 + omega)))
    assert (method.eta, method.mu) == (pytest.approx(eta), 0.1)
    theta1 = min(1 / 4, sqrt(eta * 0.1 / p))
    gamma = eta / (2 * (theta1 + eta * 0.1))
    assert method.weights(n, d) == pytest.approx((theta1, 1 / 2, gamma, 1 - gamma * 0.1))

    method = resolved(ADIANA(Q, parameters="refined"), d, n)
    theta2 = 1 / (3 * sqrt(n) + 3 * n / omega)
    eta, theta1 = n * theta2 / (120 * omega * 3), sqrt(0.1 / 3) / 3
    assert method.p == method.alpha == pytest.approx(1 / (1 + omega))
    assert method.eta == pytest.approx(eta)
    gamma, beta = eta / (2 * theta1 + eta * 0.1), 2 * theta1 / (2 * theta1 + eta * 0.1)
    assert method.weights(n, d) == pytest.approx((theta1, theta2, gamma, beta))


def test_adiana_steps_without_compression():
    """omega = 0: eta = 1/(2 L_max), p = 1; refined: theta2 = 0, eta = 1/(360 L)."""
    method = resolved(ADIANA(Identity()), 12, 4)
    assert (method.p, method.alpha, method.eta) == (1, 1, 0.1)
    method = resolved(ADIANA(Identity(), parameters="refined"), 12, 4)
    assert (method.p, method.alpha, method.eta) == (1, 1, pytest.approx(1 / 1080))
    assert method.weights(4, 12)[:2] == (pytest.approx(sqrt(0.1 / 3) / 3), 0)


@pytest.mark.parametrize("parameters", ["original", "refined"])
@pytest.mark.parametrize("Q", [RandK(2, values="f8"), Natural(values="f8")], ids=repr)
def test_adiana_converges_linearly_by_theory(Q, parameters):
    """Section 2.4: by a constant factor over each of equal spans of rounds, to the optimum."""
    problem, n = squares(4, 8, seed=31), 4
    loop = start(ADIANA(Q, parameters=parameters), problem, n, seed=1)
    length = 500 if parameters == "refined" else 100
    errors = [np.sum((y - problem.x_star) ** 2) for y in trajectory(loop, 3 * length)[::length]]
    assert all(new < 0.5 * old or new < 1e-20 for old, new in pairwise(errors)), errors


def test_adiana_needs_strong_convexity():
    with pytest.raises(ConfigError, match="mu"):
        resolved(ADIANA(RandK(3)), 12, 4, replace(HAND, mu=None))


# --- DASHA ---


@every_uplink
def test_dasha_keeps_g_the_mean_of_g_i(Q):
    problem, n = PLACES[0]
    loop = start(DASHA(Q), problem, n)
    for k in range(ROUNDS):
        loop.step(k)
        assert_mean(loop.replica.g, loop, "g")


def test_dasha_without_compression_is_gd():
    """Exact.  Section 4.6: omega = 0, a = 1 => g_i = grad f_i(x)."""
    problem = integers(4, 8)
    method = DASHA(WHOLE, gamma=EIGHTH)
    assert resolved(method, 8, 4).a == 1
    assert_equal(
        trajectory(start(method, problem, 4), EXACT),
        trajectory(start(GD(EIGHTH, values="f8"), problem, 4), EXACT),
    )


@every_uplink
def test_dasha_stays_at_the_optimum(Q):
    """Exact, for ever.  Section 4.6: g_i = h_i = grad f_i(x*), g = 0."""
    problem = at_optimum()
    loop = start(DASHA(Q), problem, 4)
    for i, w in loop.workers.items():
        w.g[:] = w.h[:] = problem.objective(i, 4).grad(problem.start)
        assert w.g.any()
    for x in trajectory(loop, 30):
        assert np.array_equal(x, problem.start)


@pytest.mark.parametrize(("Q", "omega", "A"), BY_HAND, ids=lambda v: repr(v) if hasattr(v, "omega") else "")
def test_dasha_steps(Q, omega, A):
    """Section 4.6, with A for omega/n."""
    method = resolved(DASHA(Q), 12, 4)
    assert method.a == pytest.approx(1 / (2 * omega + 1))
    assert method.gamma == pytest.approx(1 / (3 + L_TILDE * sqrt(16 * A * (2 * omega + 1))))


@pytest.mark.parametrize("Q", [RandK(2), PermK(), Natural()], ids=repr)
def test_dasha_converges_linearly(Q):
    problem = squares(4, 8, seed=31)
    loop = start(DASHA(Q, gamma="theory*2"), problem, 4, seed=1)
    errors = [np.sum((x - problem.x_star) ** 2) for x in trajectory(loop, 600)[::200]]
    assert all(new < 0.2 * old or new < 1e-20 for old, new in pairwise(errors)), errors


# --- EF21-P + DIANA ---


@every_uplink
def test_ef21p_with_a_lossless_downlink_is_diana(Q):
    """Section 6.2: C = I => w = x, DIANA's.  To rounding: w + (x - w) is not always x in floating point."""
    problem, n = PLACES[0]
    gamma = 0.1 / problem.constants(n).L_max
    loop = start(EF21P(WHOLE, Q, gamma=gamma), problem, n, seed=2)
    wanted = trajectory(start(DIANA(Q, gamma=gamma, down=Sparse()), problem, n, seed=2), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))
    assert np.abs(loop.server.x - loop.replica.w).max() <= 1e-15 * np.abs(wanted).max()


@pytest.mark.parametrize(
    "Q", [RandK(4, values="f8"), PermK(values="f8"), Bernoulli(0.5, values="f8")], ids=repr
)
def test_ef21p_with_a_lossless_downlink_is_diana_bit_for_bit(Q):
    """Exact, where data are integers and factors powers of two."""
    problem = integers(4, 8)
    loop = start(EF21P(WHOLE, Q, gamma=EIGHTH), problem, 4, seed=2)
    wanted = trajectory(start(DIANA(Q, gamma=EIGHTH), problem, 4, seed=2), 7)
    assert_equal(trajectory(loop, 7), wanted)
    assert np.array_equal(loop.server.x, loop.replica.w)


@pytest.mark.parametrize("C", [WHOLE, TopK(8, values="f8")], ids=repr)
def test_ef21p_without_compression_is_gd(C):
    """Exact.  Section 6.1; Q is Identity() unless said otherwise, in f8 here."""
    problem = integers(4, 8)
    wanted = trajectory(start(GD(EIGHTH, values="f8"), problem, 4), EXACT)
    assert_equal(trajectory(start(EF21P(C, WHOLE, gamma=EIGHTH), problem, 4), EXACT), wanted)
    assert isinstance(EF21P(C).Q, Identity)


@every_pair
def test_ef21p_keeps_h_the_mean_of_h_i(Q, C):
    problem, n = PLACES[0]
    loop = start(EF21P(C, Q), problem, n)
    for k in range(30):
        loop.step(k)
        assert_mean(loop.server.h, loop, "h")


@pytest.mark.parametrize(
    ("C", "alpha"), [(TopK(3), 1 / 4), (Sign(), 1 / 12), (Identity(), 1)], ids=lambda v: repr(v)
)
@pytest.mark.parametrize(("Q", "omega"), [(q, o) for q, o, _ in BY_HAND if q != RandK(3, mask="shared")])
def test_ef21p_steps(C, alpha, Q, omega):
    """Section 6.2, for independent compressors; each of the bounds."""
    bounds = [
        4 / (160 * omega * 5),
        sqrt(4 * alpha) / (20 * sqrt(omega) * L_TILDE),
        alpha / (100 * 3),
    ]
    method = resolved(EF21P(C, Q), 12, 4)
    assert method.gamma == pytest.approx(min(*bounds, 1 / ((omega + 1) * 0.1)))
    assert method.beta == pytest.approx(1 / (1 + omega))
    stiff = resolved(EF21P(C, Q), 12, 4, replace(HAND, mu=1e9))
    assert stiff.gamma == pytest.approx(1 / ((omega + 1) * 1e9))
    plain = replace(HAND, mu=None, L=1e-9)
    assert resolved(EF21P(C, Q), 12, 4, plain).gamma == pytest.approx(min(*bounds[:2], alpha / 1e-7))
    assert resolved(EF21P(C), 12, 4, replace(HAND, mu=None)).gamma == pytest.approx(alpha / 300)


@pytest.mark.parametrize(
    ("Q", "C"), [(RandK(2), TopK(2)), (PermK(), Sign()), (Natural(), Shrunk(RandK(4)))], ids=repr
)
def test_ef21p_converges_linearly(C, Q):
    """Section 6.2: in practice a multiple of the theory step works; here 0.05/L."""
    problem = squares(4, 8, seed=31)
    gamma = 0.05 / problem.constants(4).L
    errors = [
        np.sum((w - problem.x_star) ** 2)
        for w in trajectory(start(EF21P(C, Q, gamma=gamma), problem, 4, seed=1), 900)[::300]
    ]
    assert all(new < 0.2 * old or new < 1e-20 for old, new in pairwise(errors)), errors


# --- 2Direction ---


def test_twodirection_without_compression_is_accelerated_gradient_descent():
    """Section 6.3: identity, p = tau = beta = 1 => w = u, z = x, theta <= 1/4, g = grad f(y)."""
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
    """Section 6.3; between rounds the workers have taken in as much as the server."""
    problem, n = PLACES[0]
    loop = start(TwoDirection(C, Q, Lbar=10.0), problem, n)
    for k in range(30):
        loop.step(k)
        assert_mean(loop.server.h, loop, "h")


@pytest.mark.parametrize("mu", [0, 1e-3, 0.5])
@pytest.mark.parametrize("p", [1.0, 0.1])
@pytest.mark.parametrize("tau", [1.0, 0.02])
def test_twodirection_rates(mu, p, tau):
    """Section 6.3: Gamma+ (1 - p theta) = Gamma; Lbar theta gamma <= Lbar + Gamma mu, with equality where
    theta is below its cap."""
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
    """Section 6.3, numerics: 20,000 rounds, and everything stays finite and as the ratio says."""
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


@every_pair
@pytest.mark.parametrize("mu", [0.5, 0])
def test_twodirection_stays_at_the_optimum(Q, C, mu):
    """Section 6.3: x0 = x*, where h_i = grad f_i(x*) and k = v = 0 come of round 0, data being integers.

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


@pytest.mark.parametrize(
    ("C", "alpha", "Q", "omega"),
    [
        (TopK(3), 1 / 4, RandK(3), 3),
        (Sign(), 1 / 12, Natural(), 1 / 8),
        (Identity(), 1, RandK(1), 11),
        (TopK(3), 1 / 4, Identity(), 0),
    ],
    ids=lambda v: repr(v) if hasattr(v, "compress") else "",
)
@pytest.mark.parametrize(("p", "tau"), [(0.25, 0.25), (1.0, 0.1), (0.01, 1.0)])
def test_twodirection_steps(C, alpha, Q, omega, p, tau):
    """Section 6.3, for independent compressors."""
    beta, n, L, L_max = 1 / (1 + omega), 4, 3, 5
    terms = [
        L / alpha,
        L * p / (alpha * tau),
        sqrt(L * L_max) * p * sqrt(omega * tau) / (alpha * beta * sqrt(n)),
        sqrt(L * L_max) * sqrt(p) * sqrt(omega * tau) / (alpha * sqrt(beta) * sqrt(n)),
        L_max * omega * p**2 / (beta**2 * n),
        L_max * omega / n,
    ]
    method = resolved(TwoDirection(C, Q, p=p, tau=tau), 12, n)
    assert method.beta == pytest.approx(beta)
    assert (method.Lbar, method.mu) == (pytest.approx(660508 * max(terms)), 0.1)
    scaled = resolved(TwoDirection(C, Q, "theory*0.001", p=p, tau=tau), 12, n, replace(HAND, mu=None))
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
    """Section 6.3: p = min{1/(1+omega), 1/rho}, tau = p^{1/3}/(1+omega)^{2/3}, in bytes."""
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
    """Section 6.3: with Lbar = 16 L in place of the theory's."""
    problem = squares(4, 8, seed=31)
    L = problem.constants(4).L
    loop = start(TwoDirection(C, Q, Lbar=16 * L, dense=WHOLE), problem, 4, seed=1)
    errors = [np.sum((z - problem.x_star) ** 2) for z in trajectory(loop, 900)[::300]]
    assert all(new < 0.2 * old or new < 1e-16 for old, new in pairwise(errors)), errors


@pytest.mark.parametrize("dense", [Identity(), WHOLE], ids=repr)
def test_twodirection_bytes(dense):
    """Up: dense once, one message in round 1, two from then on.  Down: dense once, P, and 2d at a sync."""
    problem, n = PLACES[0]
    loop = start(TwoDirection(TopK(3), RandK(3), Lbar=10.0, p=0.3, dense=dense), problem, n)
    whole, key = dense.mean_nbytes(12, n), Key(0, 0, None, n)
    for k in range(20):
        before = loop.ledger.up[0], loop.ledger.down.copy(), loop.ledger.paper_bits_up
        loop.step(k)
        up, down = loop.ledger.up[0] - before[0], loop.ledger.down - before[1]
        charged = (loop.ledger.paper_bits_up - before[2]) / n
        sync = loop.method._syncs(replace(key, round=k))
        if k == 0:
            assert charged == 12 * 32
            assert whole <= up <= whole + 8 and np.all((whole <= down) & (down <= whole + 8))
        else:
            assert charged == 3 * 32 * min(k, 2)
            assert 12 * min(k, 2) <= up <= 12 * min(k, 2) + 8
            wanted = 13 + 2 * whole * sync
            assert np.all((wanted <= down) & (down <= wanted + 8))


# --- what is refused ---


@pytest.mark.parametrize(
    "Q", [TopK(2), Sign(), Shrunk(RandK(2)), HardThreshold(0.1), "randk", None], ids=repr
)
@pytest.mark.parametrize(
    "make",
    [
        ADIANA,
        DASHA,
        lambda Q: EF21P(TopK(2), Q),
        lambda Q: TwoDirection(TopK(2), Q),
    ],
    ids=["ADIANA", "DASHA", "EF21P", "TwoDirection"],
)
def test_an_uplink_of_the_wrong_kind_is_refused(make, Q):
    with pytest.raises(ConfigError, match=r"needs Q to be unbiased.*RandK\(k=0\.01\)"):
        make(Q)


@pytest.mark.parametrize("C", [RandK(2), PermK(), Natural(), HardThreshold(0.1), "topk", None], ids=repr)
@pytest.mark.parametrize("make", [EF21P, lambda C: TwoDirection(C, RandK(2))], ids=["EF21P", "TwoDirection"])
def test_a_downlink_of_the_wrong_kind_is_refused(make, C):
    with pytest.raises(ConfigError, match=r"needs C to be contractive.*TopK\(k=0\.01\)"):
        make(C)


@pytest.mark.parametrize("make", [EF21P, lambda C: TwoDirection(C, RandK(2))], ids=["EF21P", "TwoDirection"])
def test_a_joint_compressor_cannot_serve_the_server(make):
    with pytest.raises(ConfigError, match=r"PermK"):
        problem, n = PLACES[0]
        trajectory(start(replace(make(Shrunk(PermK())), **{make(TopK(2)).steps[0]: 1.0}), problem, n), 2)


@pytest.mark.parametrize(
    ("method", "name", "values"),
    [
        (ADIANA(RandK(2)), "mu", [0, -1.0, "theory*x", None]),
        (ADIANA(RandK(2)), "p", [0.0, 1.5, "theory"]),
        (ADIANA(RandK(2)), "alpha", [0.0, -0.5, 1.5]),
        (ADIANA(RandK(2)), "parameters", ["refind", None, 3]),
        (ADIANA(RandK(2)), "down", [RandK(2), TopK(2)]),
        (DASHA(RandK(2)), "a", [0.0, 1.5, "theory"]),
        (DASHA(RandK(2)), "down", [RandK(2), TopK(2)]),
        (EF21P(TopK(2)), "beta", [0.0, 1.5, "theory"]),
        (TwoDirection(TopK(2), RandK(2)), "mu", [-1.0, float("nan"), "theory*x"]),
        (TwoDirection(TopK(2), RandK(2)), "p", [0.0, 1.5]),
        (TwoDirection(TopK(2), RandK(2)), "tau", [0.0, 1.5]),
        (TwoDirection(TopK(2), RandK(2)), "beta", [0.0, 1.5]),
        (TwoDirection(TopK(2), RandK(2)), "dense", [RandK(2), TopK(2), Sparse()]),
    ],
    ids=lambda v: type(v).__name__ if hasattr(v, "paper") else str(v),
)
def test_other_parameters_are_checked_too(method, name, values):
    for value in values:
        with pytest.raises(ConfigError, match=name):
            replace(method, **{name: value})
