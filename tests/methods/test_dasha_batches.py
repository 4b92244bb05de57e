"""DASHA on batches: DASHA-PAGE and DASHA-MVR."""

from __future__ import annotations

from itertools import product
from math import sqrt

import numpy as np
import pytest

from mpicomp.compressors import Natural, PermK, RandK
from mpicomp.methods import DASHA, DASHAMVR, DASHAPAGE, DCGD
from mpicomp.problems import Noisy, Quadratics
from tests.reference.dashamvr import dashamvr
from tests.reference.dashapage import dashapage
from tests.support.finite_sums import (
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
    workers,
)
from tests.support.trajectories import (
    EIGHTH,
    L_TILDE,
    ROUNDS,
    WHOLE,
    assert_close,
    assert_equal,
    beginning,
    codec,
    grad_norm_sq,
    gradients,
    resolved,
    rounding,
    start,
    trajectory,
)

# --- the transcriptions ---

# Round 0 sends g_i^0, and round k what makes g^k and then x^{k+1}.  Messages, coins and batches of round k
# are drawn with ``Key(seed, k, i, n)``.


@every_case
@pytest.mark.parametrize("a", [None, 0.3])
def test_dashapage_is_its_transcription(problem, Q, b, a):
    """docs/methods.md, DASHAPAGE."""
    n = workers(problem)
    gamma = start(DASHAPAGE(Q, b, gamma="theory*8", p=0.2), problem, n).method.gamma
    loop = start(DASHAPAGE(Q, b, gamma=gamma, p=0.2, a=a), problem, n, seed=44)
    wanted = dashapage(
        gradients(problem, n),
        batches(problem, 44, b),
        problem.x0(),
        loop.method.gamma,
        loop.method.a,
        codec(Q, 44, n),
        coins("dasha/coin", 44, n, 0.2),
        ROUNDS,
        beginning("gradient", Q, 44, n),
    )
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))


@every_case
@pytest.mark.parametrize("a", [None, 0.3])
def test_dashamvr_is_its_transcription(problem, Q, b, a):
    """docs/methods.md, DASHAMVR."""
    n = workers(problem)
    gamma = 0.02
    loop = start(DASHAMVR(Q, b, b=0.4, gamma=gamma, a=a), problem, n, seed=45)
    batch, compress = batches(problem, 45, b), codec(Q, 45, n)
    first = beginning("gradient", Q, 45, n)
    wanted = dashamvr(n, batch, problem.x0(), gamma, loop.method.a, 0.4, compress, ROUNDS, first)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))


# --- what they are in special cases ---


@every_place
@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural(), WHOLE], ids=repr)
def test_dashapage_that_never_samples_is_dasha(problem, Q):
    """Exact.  p = 1."""
    n = workers(problem)
    assert same_run(DASHAPAGE(Q, 2, gamma=0.1, p=1.0), DASHA(Q, gamma=0.1), problem, n)
    assert not same_run(DASHAPAGE(Q, 2, gamma=0.1, p=0.5), DASHA(Q, gamma=0.1), problem, n)


@pytest.mark.parametrize("batch", [4, None])
def test_dasha_with_whole_batches_keeps_the_gradients(batch):
    """Exact.  PAGE's h_i + grad f_i(x+) - grad f_i(x) and MVR's, for any b, are grad f_i(x+) itself."""
    problem, n, Q = integer_sums(4, 4, 8), 4, RandK(4, values="f8")
    wanted = trajectory(start(DASHA(Q, gamma=EIGHTH, a=0.5), problem, n), 6)
    for method in (
        DASHAPAGE(Q, batch, gamma=EIGHTH, p=0.1, a=0.5),
        DASHAMVR(Q, batch, b=0.25, gamma=EIGHTH, a=0.5),
    ):
        assert_equal(trajectory(start(method, problem, n), 6), wanted)


@pytest.mark.parametrize("batch", [1, 2])
def test_dashamvr_that_keeps_nothing_is_sgd(batch):
    """Exact.  b = 1 and identity (omega = 0, a = 1) => x+ = x - gamma mean s_i(x), QSGD uncompressed."""
    problem, n = integer_sums(4, 4, 8), 4
    wanted = trajectory(start(DCGD(WHOLE, gamma=EIGHTH, batch=batch), problem, n), 6)
    method = DASHAMVR(WHOLE, batch, b=1.0, gamma=EIGHTH)
    assert_equal(trajectory(start(method, problem, n), 6), wanted)


# --- step sizes ---


@by_hand
def test_dasha_steps_on_batches(Q, omega, A, B):
    """docs/methods.md, DASHAPAGE and DASHAMVR, with A for omega/n."""
    n, p, b = 4, 0.15, 0.3
    variance = (1 - p) * 6**2 / 5
    spread = 48 * A * (2 * omega + 1) * (variance + L_TILDE**2) + 2 * variance / (p * n)
    assert resolved(DASHAPAGE(Q, 5, p=p), 12, n, SAMPLED).gamma == pytest.approx(1 / (3 + sqrt(spread)))
    spread = 48 * A * (2 * omega + 1) * L_TILDE**2
    assert resolved(DASHAPAGE(Q, None, p=p), 12, n).gamma == pytest.approx(1 / (3 + sqrt(spread)))
    variance = (1 - b) ** 2 * 6**2 / 5
    spread = 96 * A * (2 * omega + 1) * (variance + L_TILDE**2) + 4 * variance / (b * n)
    method = resolved(DASHAMVR(Q, 0.25, b=b), 12, n, SAMPLED)
    assert method.gamma == pytest.approx(1 / (3 + sqrt(spread)))
    assert method.a == pytest.approx(1 / (2 * omega + 1))


# --- theorems, with gamma='theory' ---


@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural(), WHOLE], ids=repr)
def test_dasha_on_batches_reaches_the_rate_of_its_theorem(Q):
    """docs/methods.md, DASHAPAGE: (1/T) sum E |grad f(x_t)|^2 <= 2/(gamma T) (Delta_0 + gamma (u/a + 2 A U)),
    u = |g - h|^2 and U = mean |g_i - h_i|^2 at the start: E u <= A G and E U <= omega G where that is
    compressed, G = mean |grad f_i(x0)|^2; |grad f(x0)|^2 and G where it is 0; from the gradient both are 0,
    to float32.

    The weights 1/a, 2 A, and 1/p of |h - grad f|^2, 2 D of mean |h_i - grad f_i|^2, both 0 at the start, with
    D = 2 A (4 omega + 1), make a Lyapunov function, for steps at least as large as the theorem's."""
    problem, n, T = PLACES[0], 4, 100
    A, omega = Q.ab(12, n)[0], Q.omega(12, n)
    G = np.mean([np.sum(grad(problem.x0()) ** 2) for grad in gradients(problem, n)])
    at_x0 = grad_norm_sq(problem, n, problem.x0())
    begins = {"compressed": (A * G, omega * G), "zero": (at_x0, G), "gradient": (1e-13 * G, 1e-13 * G)}
    for batch, (begin, (u, U)) in product((1, 3), begins.items()):
        method = DASHAPAGE(Q, batch, start=begin)
        gamma = gamma_of(method, problem, n)
        first = gamma * ((2 * omega + 1) * u + 2 * A * U)
        assert mean_grad_norm_sq(method, problem, n, T) <= 2 * (gap(problem, n) + first) / (gamma * T)


@pytest.mark.parametrize("Q", [RandK(5), Natural(), WHOLE], ids=repr)
def test_dashamvr_reaches_the_rate_of_its_theorem(Q):
    """docs/methods.md, DASHAMVR: as above but for the weights of |h - grad f|^2 and
    mean |h_i - grad f_i|^2: 1/b and 2 b D.  They start at s/n and s, s = sigma^2/B,
    and each round adds 2 b s/n + 2 b^2 (1 + 2 b) D s."""
    inner, n, T, sigma, b, B = Quadratics(d=20, noise=0.3, lam=1e-3), 5, 100, 0.5, 0.05, 2
    problem = Noisy(inner, sigma)
    A, omega = Q.ab(20, n)[0], Q.omega(20, n)
    D, s = 2 * A * (4 * omega + 1), sigma**2 / B
    first = s / (n * b) + 2 * b * D * s
    each = 2 * b * s / n + 2 * b**2 * (1 + 2 * b) * D * s
    method = DASHAMVR(Q, B, b=b)
    bound = 2 * gap(inner, n) / (gamma_of(method, problem, n) * T) + 2 * first / T + 2 * each
    assert mean_grad_norm_sq(method, problem, n, T) <= bound
