"""EF-SGD with a hard threshold, and EF14-SGD."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Contractive, HardThreshold, Natural, QuantizedTopK, RandK, Shrunk, Sign, TopK
from mpicomp.methods import EF14, EFSGD
from mpicomp.problems import Quadratics
from tests.reference.ef14 import ef14
from tests.reference.efsgd import efsgd
from tests.support.error_feedback import SHRINK, Jumping, everywhere, sampler
from tests.support.trajectories import (
    EIGHTH,
    EXACT,
    HAND,
    ROUNDS,
    Entropy,
    assert_close,
    assert_equal,
    codec,
    grad_norm_sq,
    integers,
    objective_value,
    resolved,
    rounding,
    start,
    trajectory,
)

# --- the transcriptions ---

# Rounds are numbered as in the papers.

CUT = [HardThreshold(0.02, values="f8"), HardThreshold(0.3, values="f8"), HardThreshold(0.02)]


def counted(sample, i: int):
    """Worker i's sampler for a transcription that asks for grad(x) once a round."""
    rounds = iter(range(10**6))
    return lambda x: sample(i, next(rounds), x)


@everywhere
@pytest.mark.parametrize("C", [*SHRINK[:4], TopK(3), *CUT], ids=repr)
def test_efsgd_is_its_transcription(problem, n, batch, C):
    """docs/methods.md, EFSGD, for contractive compressors as well."""
    gamma = 0.3 / problem.constants(n).L_max
    gamma *= C.alpha(problem.dimension(), n) if isinstance(C, Contractive) else 1
    loop = start(EFSGD(C, gamma=gamma, batch=batch), problem, n, seed=34)
    sample = sampler(problem, n, batch, 34)
    wanted = efsgd(n, sample, problem.x0(), gamma, codec(C, 34, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere
@pytest.mark.parametrize("C", [TopK(2, values="f8"), TopK(3), *CUT[1:]], ids=repr)
def test_ef14sgd_is_its_transcription(problem, n, batch, C):
    """docs/methods.md, EF14, with batches."""
    gamma = 0.3 / problem.constants(n).L_max
    gamma *= C.alpha(problem.dimension(), n) if isinstance(C, Contractive) else 1
    loop = start(EF14(C, gamma=gamma, batch=batch), problem, n, seed=35)
    sample = sampler(problem, n, batch, 35)
    grads = [counted(sample, i) for i in range(n)]
    wanted = ef14(grads, problem.x0(), gamma, codec(C, 35, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


# --- a hard threshold ---


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("method", [EFSGD, EF14])
def test_a_threshold_of_zero_is_sgd(method, batch):
    """Exact.  docs/methods.md, EFSGD: lambda = 0 => SGD, and no error."""
    problem = Jumping(integers(4, 8))
    sample = sampler(problem, 4, batch, 9)
    loop = start(method(HardThreshold(0.0, values="f8"), gamma=EIGHTH, batch=batch), problem, 4, seed=9)
    x = problem.x0()
    for k in range(EXACT):
        x = x - EIGHTH * np.mean([sample(i, k, x) for i in range(4)], axis=0)
        loop.step(k)
        assert np.array_equal(loop.replica.x, x)
        assert not any(w.e.any() for w in loop.workers.values())


@everywhere
@pytest.mark.parametrize("lam", [0.003, 0.3])
def test_errors_stay_below_the_threshold(problem, n, batch, lam):
    """Exact.  docs/methods.md, EFSGD: |e_j| < lambda for all j and t, whatever the
    step, payloads being f8."""
    for gamma in ("theory", "theory*0.01"):
        loop, largest = start(EFSGD(HardThreshold(lam, "f8"), gamma=gamma, batch=batch), problem, n), 0.0
        for k in range(ROUNDS):
            loop.step(k)
            largest = max(largest, *(np.abs(w.e).max() for w in loop.workers.values()))
        assert lam / 2 < largest < lam


def test_a_threshold_acts_on_the_gradient_and_not_on_the_step():
    """Exact.  EF14 with gamma lambda is EF-SGD with lambda; with lambda itself it is not."""
    wanted = trajectory(start(EFSGD(HardThreshold(0.04), gamma=EIGHTH), Entropy(), 4), ROUNDS)
    for lam, same in ((EIGHTH * 0.04, True), (0.04, False)):
        got = trajectory(start(EF14(HardThreshold(lam), gamma=EIGHTH), Entropy(), 4), ROUNDS)
        assert np.array_equal(got, wanted) == same


@pytest.mark.parametrize("lam", [0.01, 0.3, 3.0])
@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("factor", ["theory", "theory*0.1"])
def test_efsgd_reaches_the_rate_of_its_bound(lam, noise, factor):
    """The docstring's bound, for certain: full gradients, payloads f8.  (1/T) sum |grad f(x_t)|^2 <=
    4 Delta_0/(gamma T) + 2 gamma^2 L^2 d lambda^2 for gamma <= 1/(2L)."""
    problem, n, T = Quadratics(d=20, noise=noise, lam=1e-3), 5, 150
    c = problem.constants(n)
    gap = objective_value(problem, n, problem.x0()) - c.f_star
    loop = start(EFSGD(HardThreshold(lam, "f8"), gamma=factor), problem, n)
    gamma = loop.method.gamma
    mean = np.mean([grad_norm_sq(problem, n, x) for x in trajectory(loop, T - 1)])
    assert mean <= 4 * gap / (gamma * T) + 2 * gamma**2 * c.L**2 * 20 * lam**2


def test_the_threshold_for_an_average_count():
    """docs/methods.md, HardThreshold: lambda = 1/(2 sqrt k)."""
    assert HardThreshold.averaging(100) == HardThreshold(0.05)
    assert HardThreshold.averaging(1.1e4, "f8").lam == pytest.approx(0.00477, rel=1e-3)
    for k in (0, -1, float("nan")):
        with pytest.raises(ConfigError, match="k="):
            HardThreshold.averaging(k)


def test_the_step_of_a_hard_threshold_is_that_of_its_bound():
    assert resolved(EFSGD(HardThreshold(0.1)), 12, 4).gamma == pytest.approx(1 / (2 * HAND.L))


# --- any compressor ---


@pytest.mark.parametrize("method", [EFSGD, EF14])
@pytest.mark.parametrize(
    "C", [TopK(3, values="f8"), TopK(1, values="f8"), HardThreshold(2.0, values="f8")], ids=repr
)
@pytest.mark.parametrize("batch", [None, 2])
def test_virtual_iterate(method, C, batch):
    """Exact.  docs/methods.md, EF14 and EFSGD: x_t - gamma mean e_t = x_0 - gamma
    sum_{s<t} mean s_i; EF14's e has the gamma in it."""
    problem = Jumping(integers(4, 8))
    sample, loop = (
        sampler(problem, 4, batch, 6),
        start(method(C, gamma=EIGHTH, batch=batch), problem, 4, seed=6),
    )
    virtual = problem.x0()
    for k in range(7):
        virtual -= EIGHTH * np.mean([sample(i, k, loop.x) for i in range(4)], axis=0)
        loop.step(k)
        errors = np.mean([w.e for w in loop.workers.values()], axis=0)
        assert np.array_equal(loop.x - (EIGHTH if method is EFSGD else 1) * errors, virtual)
        assert errors.any()


@everywhere
@pytest.mark.parametrize("method", [EFSGD, EF14])
@pytest.mark.parametrize("C", [Shrunk(RandK(2)), Sign(), TopK(3), HardThreshold(0.1)], ids=repr)
def test_virtual_iterate_for_every_compressor(problem, n, batch, method, C):
    """The same to rounding: a few ulp of x, and of the step times the errors, a round."""
    gamma = 0.1 / problem.constants(n).L_max
    sample, loop = (
        sampler(problem, n, batch, 6),
        start(method(C, gamma=gamma, batch=batch), problem, n, seed=6),
    )
    virtual = problem.x0()
    scale = np.abs(virtual).max()
    for k in range(ROUNDS):
        virtual -= gamma * np.mean([sample(i, k, loop.x) for i in range(n)], axis=0)
        loop.step(k)
        errors = (gamma if method is EFSGD else 1) * np.array([w.e for w in loop.workers.values()])
        scale = max(scale, np.abs(loop.x).max(), np.abs(errors).max())
        assert np.abs(loop.x - errors.mean(axis=0) - virtual).max() <= 1e-15 * (k + 10) * scale


@pytest.mark.parametrize("C", [TopK(3), Sign(), QuantizedTopK(3, Natural()), Shrunk(RandK(3))], ids=repr)
def test_where_c_commutes_with_the_step_it_is_ef14(C):
    """Exact.  docs/methods.md, EFSGD: the two variants agree for constant gamma; a
    power of two rounds nothing."""
    first, second = (
        trajectory(start(method(C, gamma=EIGHTH), Entropy(), 4), ROUNDS) for method in (EFSGD, EF14)
    )
    assert_equal(first, second)
