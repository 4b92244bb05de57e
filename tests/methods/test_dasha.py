"""DASHA, on full gradients."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from mpicomp.compressors import Natural, PermK, RandK
from mpicomp.methods import DASHA, GD
from tests.reference.dasha import dasha
from tests.support.trajectories import (
    BY_HAND,
    EIGHTH,
    EXACT,
    L_TILDE,
    PLACES,
    ROUNDS,
    WHOLE,
    assert_close,
    assert_equal,
    assert_mean,
    at_optimum,
    beginning,
    codec,
    every_place,
    every_uplink,
    gradients,
    integers,
    resolved,
    rounding,
    squares,
    start,
    trajectory,
)

# --- the transcription ---

# Round 0 sends g_i^0, and round k what makes g^k and then x^{k+1}, with the draws of ``Key(seed, k, i, n)``.


@every_place
@every_uplink
@pytest.mark.parametrize("a", [None, 0.3])
def test_dasha_is_its_transcription(problem, n, Q, a):
    """docs/methods.md, DASHA, from g_i = h_i = grad f_i(x^0)."""
    gamma = start(DASHA(Q, gamma="theory*4"), problem, n).method.gamma
    loop = start(DASHA(Q, gamma=gamma, a=a), problem, n, seed=22)
    method = loop.method
    first, grads, compress = beginning("gradient", Q, 22, n), gradients(problem, n), codec(Q, 22, n)
    wanted = dasha(grads, problem.x0(), method.gamma, method.a, compress, ROUNDS, first)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))


# --- what holds in every round ---


@every_uplink
def test_dasha_keeps_g_the_mean_of_g_i(Q):
    problem, n = PLACES[0]
    loop = start(DASHA(Q), problem, n)
    for k in range(ROUNDS):
        loop.step(k)
        assert_mean(loop.replica.g, loop, "g")


def test_dasha_without_compression_is_gd():
    """Exact.  docs/methods.md, DASHA: omega = 0, a = 1 => g_i = grad f_i(x)."""
    problem = integers(4, 8)
    method = DASHA(WHOLE, gamma=EIGHTH)
    assert resolved(method, 8, 4).a == 1
    assert_equal(
        trajectory(start(method, problem, 4), EXACT),
        trajectory(start(GD(EIGHTH, values="f8"), problem, 4), EXACT),
    )


@every_uplink
def test_dasha_stays_at_the_optimum(Q):
    """Exact, for ever.  docs/methods.md, DASHA: g_i = h_i = grad f_i(x*), g = 0."""
    problem = at_optimum()
    loop = start(DASHA(Q), problem, 4)
    for i, w in loop.workers.items():
        w.g[:] = w.h[:] = problem.objective(i, 4).grad(problem.start)
        assert w.g.any()
    for x in trajectory(loop, 30):
        assert np.array_equal(x, problem.start)


# --- step sizes, and the way to the optimum ---


@pytest.mark.parametrize(("Q", "omega", "A"), BY_HAND, ids=lambda v: repr(v) if hasattr(v, "omega") else "")
def test_dasha_steps(Q, omega, A):
    """docs/methods.md, DASHA, with A for omega/n."""
    method = resolved(DASHA(Q), 12, 4)
    assert method.a == pytest.approx(1 / (2 * omega + 1))
    assert method.gamma == pytest.approx(1 / (3 + L_TILDE * sqrt(16 * A * (2 * omega + 1))))


@pytest.mark.parametrize("Q", [RandK(2), PermK(), Natural()], ids=repr)
def test_dasha_converges_linearly(Q):
    problem = squares(4, 8, seed=31)
    loop = start(DASHA(Q, gamma="theory*2"), problem, 4, seed=1)
    errors = [np.sum((x - problem.x_star) ** 2) for x in trajectory(loop, 600)[::200]]
    assert all(new < 0.2 * old or new < 1e-20 for old, new in pairwise(errors)), errors
