"""Workers that lie: what they tell a method, and what a run records."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import mpicomp
from mpicomp import EF21, GD, VRMARINA, ByzVRMARINA, Identity, RandK, TopK
from mpicomp.base.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.problems import Attacked, Logistic, Noisy, Quadratics, Softmax
from mpicomp.problems.base import constants_of
from mpicomp.runtime.loop import Loop
from mpicomp.text.config import parse_problem, to_text
from mpicomp.transports.local import Local
from tests.problems.test_problems import assert_together

rng = np.random.default_rng
INNER = Quadratics(d=7, noise=0.5, lam=0.1)
DIGITS = Logistic("digits", lam=0.1)
X = rng(0).normal(size=7)


def told(attack, scale, n=9, liars=2, own=0):
    """What the liar with the data of worker ``own`` tells of its gradient at X, and the honest gradients."""
    problem = Attacked(INNER, liars, attack, scale)
    honest = np.array([INNER.objective(j, n - liars).grad(X) for j in range(n - liars)])
    return problem.objective(n - liars + own, n).told.grad(X), honest


@pytest.mark.parametrize("own", [0, 1])
def test_lies_by_hand(own):
    for scale, c in ((None, 1.0), (2.5, 2.5)):
        lie, honest = told("sign_flip", scale, own=own)
        assert np.array_equal(lie, -c * honest[own])
        lie, honest = told("ipm", scale, own=own)
        assert lie == pytest.approx(-c * honest.mean(axis=0), rel=1e-14)
    lie, honest = told("alie", 1.5, own=own)
    assert lie == pytest.approx(honest.mean(axis=0) - 1.5 * honest.std(axis=0), rel=1e-13)


def test_the_scale_of_a_little_is_enough():
    """n = 16, b = 3: s = 6 of 13 honest workers, Phi^-1(7/13); n = 50, b = 24: s = 2 of 26, Phi^-1(24/26)."""
    for n, liars, z in ((16, 3, 0.0965586), (50, 24, 1.4260769)):
        lie, honest = told("alie", None, n, liars)
        assert (honest.mean(axis=0) - lie) / honest.std(axis=0) == pytest.approx(np.full(7, z), rel=1e-5)


def test_batches_are_lied_about_too():
    problem, stream = Attacked(DIGITS, 1, "ipm", 2.0), Key(0, 1, 4, 5).private("batch")
    f, x = problem.objective(4, 5), rng(1).normal(size=DIGITS.dimension())
    honest = [DIGITS.objective(j, 4) for j in range(4)]
    wanted = -2.0 * np.mean([g.batch_grad(x, 3, stream) for g in honest], axis=0)
    assert f.told.batch_grad(x, 3, stream) == pytest.approx(wanted, rel=1e-13)
    assert f.batch_grad(x, 3, stream) == pytest.approx(-wanted / 2, rel=1e-13)
    assert f.samples == f.told.samples == min(g.samples for g in honest)


def test_honest_workers_share_the_data_and_tell_the_truth():
    problem = Attacked(INNER, 2)
    for i in range(7):
        f = problem.objective(i, 9)
        assert f == INNER.objective(i, 7) and f.told is f


def test_a_liars_own_f_is_f():
    f = Attacked(INNER, 2).objective(8, 9)
    honest = [INNER.objective(j, 7) for j in range(7)]
    assert f.value(X) == f.told.value(X) == pytest.approx(np.mean([g.value(X) for g in honest]), rel=1e-14)
    assert f.grad(X) == pytest.approx(np.mean([g.grad(X) for g in honest], axis=0), rel=1e-13)
    mean = np.mean([g.smoothness_matrix() for g in honest], axis=0)
    assert f.smoothness_matrix() == pytest.approx(mean, rel=1e-13)
    assert np.array_equal(f.told.smoothness_matrix(), f.smoothness_matrix())


@pytest.mark.parametrize("observe", ["full", 20])
def test_a_run_records_the_truth(observe):
    """f and |grad f|² of the rows are those of the honest workers at the iterate; on samples, near them."""
    problem = Attacked(DIGITS, 2, "sign_flip", 3.0)
    r = mpicomp.run(GD(0.1), problem, workers=7, rounds=3, observe=observe)
    honest = [DIGITS.objective(j, 5) for j in range(5)]
    f = np.mean([g.value(r.x) for g in honest])
    norm_sq = np.sum(np.mean([g.grad(r.x) for g in honest], axis=0) ** 2)
    close = 1e-12 if observe == "full" else 0.3
    assert r.rows[-1].f == pytest.approx(f, rel=close)
    assert r.rows[-1].grad_norm_sq == pytest.approx(norm_sq, rel=close if close < 0.1 else 10)
    assert (r.rows[-1].f == pytest.approx(f, rel=1e-12)) == (observe == "full")


def test_the_mean_of_gradients_is_moved_by_the_lies():
    """n = 7, two liars with -3 times honest gradients: x = -gamma (sum of five - 3 (g_0 + g_1))/7."""
    problem = Attacked(INNER, 2, "sign_flip", 3.0)
    loop = Loop(GD(0.1, values="f8"), problem, Local(7), 0)
    g = [INNER.objective(j, 5).grad(problem.x0()) for j in range(5)]
    loop.step(0)
    assert loop.x == pytest.approx(problem.x0() - 0.1 * (sum(g) - 3 * g[0] - 3 * g[1]) / 7, rel=1e-13)


def test_noise_on_top_of_lies():
    """The noise is added to the lie, and the truth has none."""
    stream = Key(0, 1, 8, 9).private("batch")
    for attack in ("sign_flip", "alie"):
        plain = Attacked(INNER, 2, attack, 3.0).objective(8, 9)
        noisy, honest = (
            Noisy(p, 2.0).objective(8, n) for p, n in ((Attacked(INNER, 2, attack, 3.0), 9), (INNER, 9))
        )
        noise = honest.batch_grad(X, 1, stream) - honest.grad(X)
        assert np.array_equal(noisy.told.grad(X), plain.told.grad(X))
        assert noisy.told.batch_grad(X, 1, stream) == pytest.approx(plain.told.grad(X) + noise, abs=1e-14)
        assert np.array_equal(noisy.grad(X), plain.grad(X))


def test_lies_cost_the_bytes_of_the_truth():
    """What a liar sends is a message like others, and is counted."""
    method = VRMARINA(Identity(), batch=2, gamma=0.1, p=0.5)
    for attack in ("sign_flip", "ipm", "alie"):
        r = mpicomp.run(method, Attacked(DIGITS, 2, attack), workers=7, rounds=5)
        assert r.ledger.up.tolist() == [5 * 4 * DIGITS.dimension()] * 7


def test_constants_are_those_of_the_honest_workers():
    found, inner = Attacked(INNER, 2).constants(9), INNER.constants(7)
    assert found.L_i == (*inner.L_i, inner.L, inner.L)
    assert found.liars == 2 and replace(found, L_i=inner.L_i, liars=0) == inner
    problem = Attacked(INNER, 2)
    own = [np.diagonal(problem.objective(i, 9).smoothness_matrix()) for i in range(9)]
    assert found.diagonals() == pytest.approx(np.array(own), rel=1e-13)


def test_what_else_a_run_asks_is_the_inner_problems():
    problem = Attacked(DIGITS, 2)
    assert problem.dimension() == DIGITS.dimension() and problem.parts() == DIGITS.parts()
    assert problem.fingerprint() == DIGITS.fingerprint() != ""
    assert problem.shard_sizes(7) == DIGITS.shard_sizes(5) + DIGITS.shard_sizes(5)[:2]
    assert Attacked(INNER, 2).shard_sizes(7) is None
    softmax = Softmax("digits", lam=0.1)
    assert Attacked(softmax, 1).parts() == softmax.parts()
    assert np.array_equal(Attacked(INNER, 1).x0(), INNER.x0())


@pytest.mark.parametrize(("liars", "n"), [(1, 2), (2, 4), (3, 5), (1, 1)])
def test_half_of_the_workers_is_too_many(liars, n):
    problem = Attacked(INNER, liars)
    for ask in (
        lambda: problem.objective(0, n),
        lambda: problem.constants(n),
        lambda: problem.shard_sizes(n),
    ):
        with pytest.raises(ConfigError, match=rf"liars={liars} of {n} workers; allowed: fewer than half"):
            ask()


def test_what_is_no_attack_is_refused():
    for wrong in (
        {"liars": 0},
        {"liars": 0.5},
        {"attack": "mimic"},
        {"scale": np.nan},
        {"scale": "big"},
        {"scale": True},
    ):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            replace(Attacked(INNER, 1), **wrong)
    with pytest.raises(ConfigError, match="attacked takes a problem"):
        Attacked("quadratics", 1)
    for liars_within in (Attacked(INNER, 1), Noisy(Attacked(INNER, 1), 0.1)):
        with pytest.raises(ConfigError, match="a problem of honest workers, and this one has liars already"):
            Attacked(liars_within, 1)


def test_it_is_text():
    problem = parse_problem("attacked(problem=noisy(quadratics(d=7), 1), liars=3, attack=alie)")
    assert problem == Attacked(Noisy(Quadratics(d=7), 1), 3, "alie")
    assert parse_problem(to_text(problem)) == problem
    assert eval(repr(problem)) == problem


def test_value_and_gradient_of_a_liar_together_have_the_bits_of_each():
    assert_together(Attacked(INNER, 2).objective(8, 9), X)


def test_a_step_of_theory_is_refused_where_more_workers_lie_than_its_theorem_allows():
    problem, n = Attacked(Quadratics(d=4), liars=2), 7

    def resolved(method):
        return method.resolve(lambda: constants_of(problem, n), 4, n)

    with pytest.raises(ConfigError, match="EF21: theory, of gamma, holds if at most 0 workers lie, and 2"):
        resolved(EF21(TopK(k=1)))
    assert resolved(EF21(TopK(k=1), gamma=0.1)).gamma == 0.1
    median = partial(ByzVRMARINA, RandK(k=2), None, rule="median")
    with pytest.raises(
        ConfigError, match="theory, of gamma and p, holds if at most 1 workers lie, and 2 may"
    ):
        resolved(median(liars=1))
    assert resolved(median(liars=2)).gamma > 0
