"""ADEF: its transcription, AGD without compression, and what its memories keep."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from mpicomp import Aggregator, Descent
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import HardThreshold, Identity, Lossless, RandK, Shrunk, TopK
from mpicomp.methods import ADEF, AGD, EF21
from mpicomp.problems import Noisy, Quadratics
from tests.reference.adef import adef
from tests.support.error_feedback import SAMPLED, SHRINK, sampler
from tests.support.trajectories import (
    HAND,
    ROUNDS,
    WHOLE,
    Entropy,
    assert_close,
    assert_mean,
    grad_norm_sq,
    gradients,
    mean_of,
    named_codec,
    resolved,
    rounding,
    squares,
    start,
    trajectory,
)

every_mu = pytest.mark.parametrize("mu", [0.0, 0.05])


@pytest.mark.parametrize(
    ("problem", "n", "batch"), [SAMPLED[i] for i in (0, 2, 3)], ids=["d12", "noisy", "digits"]
)
@pytest.mark.parametrize("C", SHRINK, ids=repr)
@every_mu
def test_adef_is_its_transcription(problem, n, batch, C, mu):
    """docs/methods.md, ADEF: here along β_k (x^{k+1} - x^k), there by similar triangles."""
    gamma = 0.3 / problem.constants(n).L_max
    loop = start(ADEF(C, gamma=gamma, mu=mu, batch=batch), problem, n, seed=37)
    compress = named_codec(C, 37, n, {"c": 0, "m": 0})
    wanted = adef(n, sampler(problem, n, batch, 37), problem.x0(), gamma, mu, compress, ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, 10 * rounding(C))


@pytest.mark.parametrize("n", [1, 4])
@every_mu
def test_without_compression_it_is_agd(n, mu):
    """And nothing is left in the memories but rounding."""
    problem = squares(n, 12, seed=3)
    gamma = 1 / problem.constants(n).L
    loop = start(ADEF(WHOLE, gamma=gamma, mu=mu), problem, n)
    wanted = trajectory(start(AGD(gamma=gamma, mu=mu, values="f8"), problem, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, 1e-12)
    assert all(np.abs(w.e).max() < 1e-13 for w in loop.workers.values())


@pytest.mark.parametrize("C", [TopK(1), TopK(4, values="f8"), Shrunk(RandK(2))], ids=repr)
@every_mu
def test_no_error_is_lost(C, mu):
    """z - γ t mean e_i, or with 1/√(γμ) for t, takes the steps of AGD along the gradients at y."""
    problem, n, gamma = Entropy(), 4, 0.05
    loop, grads = start(ADEF(C, gamma=gamma, mu=mu), problem, n, seed=2), gradients(problem, n)
    r, largest, virtual = sqrt(gamma * mu), 0.0, problem.x0()
    for k in range(60):
        x, y, weight = loop.x.copy(), loop.replica.y.copy(), 1 / r if mu else loop.replica.t
        loop.step(k)
        s = np.mean([grad(y) for grad in grads], axis=0)
        virtual = ((1 - r) * virtual + r * y if mu else virtual) - gamma * weight * s
        z, e = x + weight * (loop.x - x), mean_of(loop, "e")
        assert np.abs(z - gamma * weight * e - virtual).max() < 1e-11
        largest = max(largest, gamma * weight * np.abs(e).max())
    assert largest > 1e-3


@every_mu
def test_every_rank_has_the_mean_of_the_estimates(mu):
    loop = start(ADEF(TopK(3), gamma=0.05, mu=mu), Entropy(), 4)
    for k in range(20):
        loop.step(k)
        assert_mean(loop.replica.h, loop, "h")
    assert loop.replica.h.any()


def test_at_a_common_minimiser_it_stays():
    """Exact, whatever γ."""
    problem = squares(4, 6, seed=4)
    still = type(problem)(problem.A, np.zeros((4, 6)), np.zeros(6))
    loop = start(ADEF(TopK(2), gamma=50.0), still, 4)
    trajectory(loop, 5)
    assert not loop.x.any()


def test_both_messages_are_counted():
    """Two vectors up, of 8 bytes a number, and a byte that tells them apart; one gradient."""
    loop = start(ADEF(WHOLE, gamma=0.1), Entropy(), 4)
    trajectory(loop, 7)
    assert (loop.ledger.up == 7 * (2 * 8 * 12 + 1)).all()
    assert loop.ledger.paper_bits_up == 7 * 4 * 2 * 32 * 12
    assert loop.observe().epochs == 7


def rounds_to(reduction, method, problem):
    """The rounds after which |∇f|² has been reduced by that factor."""
    loop = start(method, problem, 4)
    target = reduction * grad_norm_sq(problem, 4, loop.x)
    for k in range(3000):
        if grad_norm_sq(problem, 4, loop.x) <= target:
            return k
        loop.step(k)
    return 3000


def test_it_is_faster_than_ef21_with_twice_the_coordinates():
    """With the step 1/L for both, on ill-conditioned quadratics."""
    problem = Quadratics(d=60, noise=0.5, lam=1e-4)
    gamma = 1 / problem.constants(4).L
    fast, slow = (rounds_to(1e-6, m, problem) for m in (ADEF(TopK(12), gamma), EF21(TopK(24), gamma)))
    assert 3 * fast < slow < 3000


def test_strong_convexity_pays_where_much_is_asked():
    problem = Quadratics(d=60, noise=0.5, lam=0.01)
    gamma = 0.5 / problem.constants(4).L
    known, unknown = (rounds_to(1e-12, ADEF(TopK(20), gamma, mu=mu), problem) for mu in (0.01, 0.0))
    assert 2 * known < unknown


def test_a_descent_asks_at_y():
    """The gradient at ``point``, and no function."""
    problem = squares(1, 6, seed=4)
    (grad,), method = gradients(problem, 1), ADEF(TopK(2), gamma=0.1)
    descent, loop = Descent(method, problem.x0()), start(method, problem, 1)
    for k in range(10):
        assert np.array_equal(descent.point, loop.replica.y)
        descent.step(grad(descent.point))
        loop.step(k)
    assert np.array_equal(descent.x, loop.x) and not np.array_equal(descent.x, descent.point)
    with pytest.raises(ConfigError, match=r"ADEF chooses the points.*Descent"):
        Aggregator(method, problem.x0())


def test_there_is_no_theory_for_gamma():
    with pytest.raises(ConfigError, match=r"ADEF has no theory step size; give gamma as a number"):
        resolved(ADEF(TopK(2)), 12, 4)
    assert resolved(ADEF(TopK(2), gamma=0.1, mu="theory"), 12, 4).mu == HAND.mu
    assert resolved(ADEF(TopK(2), gamma=0.1, mu="theory*0.5"), 12, 4).mu == HAND.mu / 2
    for mu in (0.0, None):  # f is merely convex, or not known to be convex
        c = replace(HAND, mu=mu)
        assert resolved(ADEF(TopK(2), gamma=0.1, mu="theory"), 12, 4, c).mu == 0
    loop = start(ADEF(TopK(2), gamma=0.1, mu="theory"), Noisy(Quadratics(d=6, lam=0.25), 0.1), 2)
    assert loop.method.mu >= 0.25


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"C": RandK(2)}, "ADEF needs C to be contractive"),
        ({"C": HardThreshold(0.1)}, "ADEF needs C to be contractive"),
        ({"mu": -1.0}, "mu"),
        ({"mu": "teory"}, "mu"),
        ({"gamma": 0}, "gamma"),
        ({"gamma": "auto"}, "ADEF takes no gamma='auto'"),
        ({"batch": 0}, "batch=0"),
        ({"down": Identity()}, "down"),
        ({"down": Lossless(forward=True)}, "leave forward out"),
    ],
    ids=repr,
)
def test_other_values_are_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        ADEF(**{"C": TopK(2), "gamma": 0.1, **wrong})
