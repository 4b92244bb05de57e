"""Gaussian noise of a stated variance, named by the stream."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.keys import Key, Stream
from mpicomp.problems import Logistic, Noisy, Quadratics
from mpicomp.text.config import parse_problem, to_text
from tests.problems.test_problems import assert_together

rng = np.random.default_rng
INNER = Quadratics(d=30, noise=0.5, lam=0.1)


def stream(k: int, worker: int = 0) -> Stream:
    return Key(seed=7, round=k, worker=worker, n=4).private("test/noise")


def test_value_gradient_and_start_are_those_of_the_inner_problem():
    problem, x = Noisy(INNER, 2.0), rng(0).normal(size=30)
    f, inner = problem.objective(1, 3), INNER.objective(1, 3)
    assert f.value(x) == inner.value(x)
    assert f.grad(x).tobytes() == inner.grad(x).tobytes()
    assert_together(f, x)
    assert problem.x0().tobytes() == INNER.x0().tobytes()
    assert problem.dimension() == 30
    assert f.samples is None
    digits = Logistic("digits", lam=0.1)
    assert Noisy(digits, 1.0).fingerprint() == digits.fingerprint() != ""


def test_constants_are_the_inner_ones_and_the_noise():
    found, inner = Noisy(INNER, 2.0).constants(3), INNER.constants(3)
    assert (found.sigma, found.L_sample, found.L_sigma) == (2.0, inner.L_plus, 0.0)
    assert found.L_ij == inner.L_max
    assert replace(found, sigma=None, L_sample=None, L_sigma=None, L_ij=None) == inner


def test_the_noise_is_a_function_of_the_stream_alone():
    """So it cancels, up to rounding, between two points; other rounds and workers have other noise."""
    f = Noisy(INNER, 3.0).objective(0, 2)
    x, y = rng(1).normal(size=(2, 30))
    noise = f.batch_grad(x, 2, stream(0)) - f.grad(x)
    assert noise == pytest.approx(f.batch_grad(y, 2, stream(0)) - f.grad(y), abs=1e-14)
    assert f.batch_grad(x, 2, stream(0)).tobytes() == f.batch_grad(x, 2, stream(0)).tobytes()
    for other in (stream(1), stream(0, 1)):
        assert np.abs(noise - (f.batch_grad(x, 2, other) - f.grad(x))).max() > 0.1


@pytest.mark.parametrize("b", [1, 16])
def test_the_noise_has_the_stated_variance_and_no_mean(b):
    """Over N draws of d coordinates each, at 5 standard errors: mean, mean square and a quantile."""
    f, x, N, sigma = Noisy(INNER, 3.0).objective(0, 1), np.zeros(30), 3000, 3.0
    g = f.grad(x)
    draws = np.array([f.batch_grad(x, b, stream(k)) - g for k in range(N)]) / (sigma / np.sqrt(b * 30))
    assert abs(draws.mean()) < 5 / np.sqrt(N * 30)
    assert abs(np.mean(draws**2) - 1) < 5 * np.sqrt(2 / (N * 30))
    assert np.mean(draws < -1.0) == pytest.approx(0.158655, abs=5 * np.sqrt(0.1335 / (N * 30)))
    mean_square = np.mean(np.sum((draws * sigma / np.sqrt(b * 30)) ** 2, axis=1))
    assert mean_square == pytest.approx(sigma**2 / b, rel=5 * np.sqrt(2 / (N * 30)))


def test_no_noise_is_the_gradient():
    f, x = Noisy(INNER, 0.0).objective(0, 1), rng(2).normal(size=30)
    assert np.array_equal(f.batch_grad(x, 1, stream(0)), f.grad(x))


def test_the_noise_takes_the_type_of_the_gradient():
    class Single(type(INNER.objective(0, 1))):
        def grad(self, x):
            return super().grad(x).astype(np.float32)

    inner = INNER.objective(0, 1)
    f = replace(Noisy(INNER, 1.0).objective(0, 1), f=Single(inner.q, inner.c, inner.b, inner.d))
    assert f.batch_grad(np.zeros(30, dtype=np.float32), 1, stream(0)).dtype == np.float32


def test_impossible_noise_is_refused():
    for sigma in (-1.0, np.inf, np.nan):
        with pytest.raises(ConfigError, match="sigma"):
            Noisy(INNER, sigma)
    with pytest.raises(ConfigError, match="noisy takes a problem"):
        Noisy("quadratics", 1.0)
    with pytest.raises(ConfigError, match="b = 0 samples"):
        Noisy(INNER, 1.0).objective(0, 1).batch_grad(np.zeros(30), 0, stream(0))


def test_a_problem_within_a_problem_is_text():
    problem = parse_problem("noisy(problem=quadratics(d=7, noise=0), sigma=2)")
    assert problem == Noisy(Quadratics(d=7, noise=0), 2)
    assert parse_problem(to_text(problem)) == problem
    assert eval(repr(problem)) == problem
    assert parse_problem("noisy(quadratics, 1)") == Noisy(Quadratics(), 1)
    with pytest.raises(ConfigError, match="'randk' is a compressor; a problem is expected"):
        parse_problem("noisy(randk(k=1), sigma=2)")
