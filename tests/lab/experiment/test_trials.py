"""Which step sizes a tuning tries, with which seeds and bytes, and which of them it refuses."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import mpicomp
from mpicomp import DIANA, GD, RandK, TopK, TwoDirection
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.lab.experiment.trials import Tuning
from mpicomp.lab.experiment.tuning import rose, tail, tune
from mpicomp.problems import NonconvexGLM, Quadratics
from mpicomp.runtime.limits import Limits
from mpicomp.runtime.rows import Row
from tests.support.suites import FAIR


def test_tuning_refuses_what_ends_above_its_start(noise):
    """Chosen by |∇f|², the largest step would win; f says that it has blown up."""
    problem = NonconvexGLM(data=noise)

    def attempt(method, seed, max_bytes):
        return mpicomp.run(method, problem, workers=3, rounds=60, seed=seed, max_bytes=max_bytes)

    tuning = tune(GD(gamma=1.0), (0, 24), (0,), attempt, Limits())
    largest = tuning.trials[0]
    assert largest.status == "rose" and not tuning.best.refused
    blown_up = attempt(GD(gamma=2.0**24), 0, None).rows
    kept = attempt(GD(gamma=tuning.best.gamma), 0, None).rows
    assert blown_up[-1].grad_norm_sq < kept[-1].grad_norm_sq and blown_up[-1].f > blown_up[0].f > kept[-1].f
    assert tuning.best.f == pytest.approx(np.mean([row.f for row in tail(kept)]))


def test_a_small_gradient_above_the_start_is_no_target(noise):
    problem = NonconvexGLM(data=noise)
    run = mpicomp.run(GD(gamma=2.0**24), problem, workers=3, rounds=60, every=1, target_grad_norm_sq=1e-4)
    assert run.status == "rounds" and run.rows[-1].grad_norm_sq <= 1e-4
    assert Limits(60, target_grad_norm_sq=1e-4).reached(run.rows, run.rows[0].f) is None
    assert Limits(60, target_grad_norm_sq=1e-4).reached(run.rows, run.rows[-1].f) == "target"


def test_a_step_size_given_as_its_inverse_grows_the_other_way():
    """The largest step of 2Direction has the smallest L̄ and is tried first."""
    problem = Quadratics(d=20, noise=0.0, lam=0.05)

    def attempt(method, seed, max_bytes):
        return mpicomp.run(method, problem, workers=3, rounds=100, seed=seed, max_bytes=max_bytes)

    tuning = tune(TwoDirection(TopK(5), RandK(5), Lbar=2.0**-12, p=0.2), (0, 1), (0,), attempt, Limits())
    exponents = [t.exponent for t in tuning.trials]
    assert exponents == sorted(exponents)
    assert (
        Tuning(tuple(replace(t, status="diverged", f=np.inf) for t in tuning.trials)).best.exponent
        == exponents[-1]
    )


def test_every_step_is_tried_with_the_same_seeds_until_one_refuses_it():
    problem = Quadratics(d=20, noise=0.5, lam=0.05)
    asked: list[tuple[float, int]] = []

    def attempt(method, seed, max_bytes):
        asked.append((method.gamma, seed))
        return mpicomp.run(method, problem, workers=3, rounds=100, seed=seed, max_bytes=max_bytes)

    tuning = tune(DIANA(RandK(5), gamma=0.5), (-1, 12), (7, 8, 9), attempt, Limits())
    tried = {t.exponent: t for t in tuning.trials}
    assert tried[12].status == "diverged" and [s for g, s in asked if g == 0.5 * 2**12] == [7]
    assert tried[0].seeds == 3 and [s for g, s in asked if g == 0.5] == [7, 8, 9]
    means = [
        np.mean([r.f for r in tail(attempt(DIANA(RandK(5), gamma=0.5), s, None).rows)]) for s in (7, 8, 9)
    ]
    assert tried[0].f == pytest.approx(np.mean(means), rel=1e-12)


TO_TARGET = Limits(target_grad_norm_sq=1e-4)


def ended(status: str, *f: float, sent: int = 100) -> SimpleNamespace:
    """A run of which ``tune`` sees f in the rounds 0, 1, .., and ``sent`` bytes in each direction."""
    rows = [Row(k, value, 1.0, sent, sent, 0, 0, 0.0, 0.0, 0.0) for k, value in enumerate(f)]
    return SimpleNamespace(status=status, rows=rows)


def test_once_a_step_has_reached_the_target_no_other_is_given_more_bytes_than_it_took():
    """Over all its seeds; and a step that has spent them, or missed with one seed, is tried no further."""
    sent = {4: 150, 2: 50, 1: 40, 0.5: 45}  # by step size, in each direction, where the target is reached
    asked: list[tuple[float, int, int | None]] = []

    def attempt(method, seed, max_bytes):
        asked.append((method.gamma, seed, max_bytes))
        if method.gamma == 8:
            return ended("rounds", 9.0, 2.0, sent=200)
        if max_bytes is not None and 2 * sent[method.gamma] >= max_bytes:
            return ended("max_bytes", 9.0, 2.0, sent=max_bytes // 2)
        return ended("target", 9.0, 1.0, sent=sent[method.gamma])

    tuning = tune(GD(gamma=1.0), (0, 3), (5, 6), attempt, replace(TO_TARGET, max_bytes=1000))
    assert asked == [
        (8, 5, 1000),  # no limit but the suite's while no step has reached the target with all seeds
        (4, 5, 1000),
        (4, 6, 1000),
        (2, 5, 600),  # two runs of 300 bytes were enough
        (2, 6, 500),
        (1, 5, 200),
        (1, 6, 120),
        (0.5, 5, 160),  # beyond the best, which was the smallest
        (0.5, 6, 70),
    ]
    found = [(t.gamma, t.status, t.seeds, t.reached, t.total_bytes) for t in tuning.trials]
    assert found == [
        (8, "rounds", 1, 0, 400),
        (4, "target", 2, 2, 300),
        (2, "target", 2, 2, 100),
        (1, "target", 2, 2, 80),
        (0.5, "max_bytes", 2, 1, 80),
    ]
    assert tuning.best.gamma == 1

    asked.clear()
    sent[2] = 400  # which the first seed may not spend
    tune(GD(gamma=1.0), (1, 2), (5, 6), attempt, TO_TARGET)
    assert [(gamma, seed) for gamma, seed, _ in asked if gamma == 2] == [(2, 5)]


def test_where_no_step_reaches_the_target_with_every_seed_all_steps_are_tried_with_every_seed():
    """No run is made twice, and no step that was refused goes on."""
    reaching = {(4, 5), (2, 6), (2, 7)}
    asked: list[tuple[float, int]] = []

    def attempt(method, seed, max_bytes):
        assert max_bytes == 1000
        asked.append((method.gamma, seed))
        if method.gamma == 8 and seed == 5:
            return ended("rounds", 1.0, 2.0)
        return ended("target" if (method.gamma, seed) in reaching else "rounds", 9.0, method.gamma)

    tuning = tune(GD(gamma=1.0), (0, 3), (5, 6, 7), attempt, replace(TO_TARGET, max_bytes=1000))
    first = [(8, 5), (4, 5), (4, 6), (2, 5), (1, 5)]
    assert asked == [*first, (4, 7), (2, 6), (2, 7), (1, 6), (1, 7)]
    found = [(t.gamma, t.status, t.seeds, t.reached, t.f) for t in tuning.trials]
    assert found[0] == (8, "rose", 1, 0, np.inf)
    assert found[1:] == [(4, "rounds", 3, 1, 4), (2, "rounds", 3, 2, 2), (1, "rounds", 3, 0, 1)]
    assert tuning.best.gamma == 2


@pytest.mark.parametrize(
    ("f", "above"),
    [
        ([1.0, *[0.5] * 17, 2, 2, 2], True),  # whatever f was before the last tenth
        ([1.0, *[5.0] * 17, 2, 2, 0.5], False),
        ([1.0, *[5.0] * 17, 0.5, 2, 2], False),  # once below is enough: stochastic methods move about
        ([1.0, *[5.0] * 17, 1, 2, 2], False),
    ],
)
def test_f_rose_if_it_is_above_its_start_throughout_the_last_tenth_of_the_rounds(f, above):
    run = ended("rounds", *f)
    assert [row.round for row in tail(run.rows)] == [18, 19, 20]
    assert rose(run.rows) == above
    tuning = tune(GD(gamma=1.0), (0, 0), (0,), lambda *_: run, Limits())
    assert (tuning.best.status == "rose") == above


def test_a_range_grows_until_the_best_lies_inside(tmp_path):
    text = FAIR.replace('gamma=0.2)"', 'gamma=0.8)"\ntune = [-3, -3]')
    comparison = compare(parse_suite(text), tmp_path)
    tuning = comparison.tunings["GD"]
    assert not tuning.at_edge and tuning.best.exponent == 1
    assert [t.exponent for t in tuning.trials] == [2, 1, 0, -1, -2, -3]
    assert comparison == compare(parse_suite(text), tmp_path, resume=True)
