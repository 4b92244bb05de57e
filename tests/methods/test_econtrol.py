"""EControl: its transcription, its identities, and the bound that its docstring proves."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Identity, RandK, Shrunk, TopK
from mpicomp.methods import EF21SGDM, EControl
from tests.methods.test_steps import SHRINKING
from tests.reference.econtrol import econtrol
from tests.support.error_feedback import Jumping, everywhere, sampler, shrinking
from tests.support.trajectories import (
    EIGHTH,
    EXACT,
    HAND,
    L_MEAN,
    ROUNDS,
    WHOLE,
    Entropy,
    assert_close,
    beginning,
    codec,
    grad_norm_sq,
    integers,
    resolved,
    rounding,
    squares,
    start,
    trajectory,
)

DYADIC = [TopK(3, values="f8"), TopK(1, values="f8"), Shrunk(RandK(4, values="f8"))]


@everywhere
@shrinking
@pytest.mark.parametrize("begin", ["gradient", "compressed"])
def test_econtrol_is_its_transcription(problem, n, batch, C, begin):
    """docs/methods.md, EControl."""
    eta = 0.1 if batch is None else 0.4
    gamma = 0.1 / problem.constants(n).L_max
    loop = start(EControl(C, gamma=gamma, eta=eta, batch=batch, start=begin), problem, n, seed=37)
    sample, first = sampler(problem, n, batch, 37), beginning(begin, C, 37, n)
    wanted = econtrol(n, sample, problem.x0(), gamma, eta, codec(C, 37, n), ROUNDS, first)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere
def test_without_memory_it_is_ef21sgd(problem, n, batch):
    """Exact, bytes too.  docs/methods.md, EControl: eta = 0."""
    runs = [
        mpicomp.run(method, problem, workers=n, rounds=ROUNDS, every=ROUNDS, seed=5)
        for method in (
            EControl(TopK(3), gamma=0.01, eta=0, batch=batch),
            EF21SGDM(TopK(3), gamma=0.01, eta=1, batch=batch),
            EControl(TopK(3), gamma=0.01, eta=0.5, batch=batch),
        )
    ]
    assert runs[0].iterates_sha256 == runs[1].iterates_sha256 != runs[2].iterates_sha256
    assert len({(run.ledger.up_bytes, run.ledger.down_bytes) for run in runs[:2]}) == 1


@pytest.mark.parametrize("begin", ["gradient", "compressed"])
@pytest.mark.parametrize("C", DYADIC, ids=repr)
def test_the_virtual_iterate_is_that_of_sgd(C, begin):
    """Exact, in every round.  x - γ mean e_i = x⁰ - γ Σ mean s_i, and g = mean g_i; eta = 1/2, on batches."""
    problem = Jumping(integers(4, 8))
    sample = sampler(problem, 4, 1, 0)
    loop = start(EControl(C, gamma=EIGHTH, eta=0.5, batch=1, start=begin), problem, 4)
    virtual, held = problem.x0(), 0
    for k in range(6):
        virtual = virtual - EIGHTH * np.mean([sample(i, k, loop.x) for i in range(4)], axis=0)
        loop.step(k)
        workers = loop.workers.values()
        held += any(w.e.any() for w in workers)
        assert np.array_equal(loop.x - EIGHTH * np.mean([w.e for w in workers], axis=0), virtual)
        assert np.array_equal(loop.replica.g, np.mean([w.g for w in workers], axis=0))
    assert held >= 5


def test_without_compression_it_is_sgd():
    """Exact: e_i stays 0, and g_i is s_i."""
    problem = Jumping(integers(4, 8))
    sample = sampler(problem, 4, 1, 7)
    loop = start(EControl(WHOLE, gamma=EIGHTH, eta=0.5, batch=1), problem, 4, seed=7)
    x = problem.x0()
    for k in range(EXACT):
        x = x - EIGHTH * np.mean([sample(i, k, x) for i in range(4)], axis=0)
        loop.step(k)
        assert np.array_equal(loop.x, x)
        assert not any(w.e.any() for w in loop.workers.values())


@pytest.mark.parametrize(
    ("C", "d", "n", "alpha"), SHRINKING, ids=lambda v: repr(v) if hasattr(v, "alpha") else ""
)
def test_steps(C, d, n, alpha):
    """By hand, with r = √(1-α); η = 0 has EF21's step."""
    r = sqrt(1 - alpha)
    method = resolved(EControl(C), d, n)
    assert method.eta == pytest.approx((1 - r) / (1 + r))
    assert method.gamma == pytest.approx(1 / (3 + 2 * r * L_MEAN / (1 - r)))
    assert resolved(EControl(C, eta=0), d, n).gamma == pytest.approx(1 / (3 + r * L_MEAN / (1 - r)))
    half = resolved(EControl(C, eta=method.eta / 2), d, n)
    assert half.gamma == pytest.approx(1 / (3 + 2 * r * L_MEAN / (1.5 * (1 - r))))


@pytest.mark.parametrize("C", [TopK(1), Shrunk(RandK(1)), TopK(4)], ids=repr)
def test_the_bound_of_its_proof(C):
    """(1/T) Σ |∇f|² ≤ 2 (f(x⁰) - f*)/(γT) at the step of theory, for each eta that it allows."""
    problem, n, T = squares(4, 9, seed=6), 4, 400
    problem, c = replace(problem, start=10 * problem.start), problem.constants(4)
    largest = start(EControl(C), problem, n).method.eta
    first = np.mean([problem.objective(i, n).value(problem.x0()) for i in range(n)]) - c.f_star
    for eta in (0, largest / 2, largest):
        loop = start(EControl(C, eta=eta), problem, n, seed=3)
        gamma = loop.method.gamma
        found = np.mean([grad_norm_sq(problem, n, x) for x in trajectory(loop, T)[:T]])
        assert 0.02 * first / (gamma * T) < found <= 2 * first / (gamma * T)


@pytest.mark.parametrize("eta", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("C", [TopK(1), TopK(3), Shrunk(RandK(2))], ids=repr)
def test_what_the_estimates_lack_is_at_most_what_the_proof_says(C, eta):
    """Steps 1 and 2: ‖s_i - g_i‖ ≤ 2/(2-η) ‖δ‖ and ‖e‖ ≤ ‖δ‖/η, for the gradients of a run that goes far."""
    loop = start(EControl(C, gamma=0.02, eta=eta), Entropy(), 4, seed=2)
    lack, dropped, memory = 0.0, 0.0, 0.0
    for k in range(100):
        before = {i: w.e.copy() for i, w in loop.workers.items()}
        loop.step(k)
        for i, w in loop.workers.items():
            lacking = w.e - before[i]  # s_i - g_i
            lack += np.sum(lacking**2)
            dropped += np.sum((lacking + eta * before[i]) ** 2)
            memory += np.sum(w.e**2)
    assert 0.1 * dropped < lack <= (2 / (2 - eta)) ** 2 * dropped
    assert memory <= dropped / eta**2


def test_a_memory_that_weighs_more_than_the_proof_allows_has_no_theory():
    most = (1 - sqrt(0.75)) / (1 + sqrt(0.75))
    assert resolved(EControl(TopK(3), eta=most), 12, 4).eta == most
    with pytest.raises(ConfigError, match=r"eta=0\.2: EControl has a theory step size for.* Leave eta"):
        resolved(EControl(TopK(3), eta=0.2), 12, 4)
    assert resolved(EControl(TopK(3), gamma=0.1, eta=0.2), 12, 4, HAND).gamma == 0.1
    assert resolved(EControl(Identity(), eta=1.0), 12, 4).gamma == pytest.approx(1 / 3)


@pytest.mark.parametrize("eta", [-0.1, 1.5, float("nan"), True, "theory", "0.1"], ids=repr)
def test_a_weight_that_is_none_is_refused(eta):
    with pytest.raises(ConfigError, match="eta="):
        EControl(TopK(2), eta=eta)
