"""Which step size a tuning chooses, and what it says where none is good."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.lab.experiment.trials import Trial, Tuning
from mpicomp.lab.experiment.tuning import rose, scale_step, tail, tune
from mpicomp.methods import GD
from mpicomp.problems import Objective, Problem, Quadratics
from mpicomp.runtime.limits import Limits
from mpicomp.runtime.run import run


def test_gamma_is_scaled_by_powers_of_two():
    assert scale_step(GD(), 3).gamma == "theory*8"
    assert scale_step(GD(gamma="theory*0.5"), -1).gamma == "theory*0.25"
    assert scale_step(GD(gamma=0.5), 2).gamma == 2.0


def test_the_tail_of_a_run_is_the_last_tenth_of_its_rounds():
    """f rose only if it is above f(x⁰) throughout."""
    rows = [
        SimpleNamespace(round=k, value=v) for k, v in ((0, 2.0), (8, 1.0), (17, 1.0), (18, 3.0), (20, 3.0))
    ]
    assert [row.round for row in tail(rows)] == [18, 20]
    assert rose(rows)
    rows[-1].value = 2.0
    assert not rose(rows)


def trial(exponent: int, status: str, total: int = 0, f: float = 1.0) -> Trial:
    return Trial(exponent, 2.0**exponent, status, 2, 2 * (status == "target"), total, f)


def test_the_best_trial():
    diverged, slow, fast, stuck = (
        trial(3, "diverged", f=inf),
        trial(2, "target", 9),
        trial(1, "target", 5),
        trial(0, "rounds"),
    )
    assert Tuning((diverged, slow, fast, stuck)).best == fast
    assert Tuning((trial(1, "rounds", f=0.1), trial(0, "rounds", f=0.2))).best.exponent == 1
    assert Tuning((trial(1, "rose", f=0.1), trial(0, "rounds", f=0.2))).best.exponent == 0
    assert Tuning((trial(1, "rose", 1), trial(0, "target", 9))).best.exponent == 0
    assert Tuning((diverged, trial(0, "diverged", f=inf))).best.exponent == 0
    assert Tuning((diverged, slow)).runs == 4
    assert Tuning((slow, fast, stuck)).at_edge is False
    assert Tuning((slow, fast)).at_edge is True
    again = Tuning((diverged, slow, fast, stuck))
    assert Tuning.from_json(json.loads(json.dumps(again.to_json()))) == again


def test_tuning_finds_the_best_step_and_reports_the_diverged():
    problem = Quadratics(d=20, noise=0.0, lam=0.05)

    def attempt(method, seed, max_bytes):
        limits = {"rounds": 400, "target_grad_norm_sq": 1e-8, "max_bytes": max_bytes}
        return run(method, problem, workers=2, every=1, seed=seed, **limits)

    tuning = tune(GD(), (-2, 12), (0,), attempt, Limits(400, target_grad_norm_sq=1e-8))
    status = {t.exponent: t.status for t in tuning.trials}
    assert status[12] == "diverged" and status[0] == "target"
    assert not tuning.at_edge
    alone = {}  # the same without a limit on bytes, so that every trial runs to its own end
    for exponent in range(-2, 2):
        row = attempt(scale_step(GD(), exponent), 0, None).rows[-1]
        if row.grad_norm_sq <= 1e-8:
            alone[exponent] = row.up_bytes + row.down_bytes
    assert tuning.best.exponent == min(alone, key=alone.__getitem__)
    assert tuning.best.total_bytes == min(alone.values())


@dataclass(frozen=True)
class Valued(Problem):
    """|x|² with a value that is not that of its gradient."""

    factor: float

    def dimension(self):
        return 3

    def x0(self):
        return np.ones(3)

    def objective(self, i, n):
        return Square(self.factor)


class Square(Objective):
    def __init__(self, factor):
        self.factor = factor

    def value(self, x):
        return self.factor * float(np.sum(x**2))

    def grad(self, x):
        return 2 * x


@pytest.mark.parametrize(("factor", "said"), [(-1.0, r"was refused, .* f rose"), (0.0, "ended alike")])
def test_a_tuning_without_a_good_step_warns(factor, said):
    """As of a value of the wrong sign: the smallest step was the best, without a word."""
    with pytest.warns(UserWarning, match=said):
        mpicomp.tune(GD(gamma=0.1), Valued(factor), workers=2, rounds=5, exponents=(0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mpicomp.tune(GD(gamma=0.1), Valued(1.0), workers=2, rounds=5, exponents=(0, 1))


def test_a_tuning_whose_best_step_is_at_an_end_warns():
    """The range is widened by 2^8 at most, and the best may be far beyond: here a thousand times larger."""
    with pytest.warns(
        UserWarning, match=r"the best step, 9.765625e-05, is at the end of those that were tried"
    ):
        tuning = mpicomp.tune(GD(gamma=0.1), Valued(1.0), workers=2, rounds=5, exponents=(-18, -18))
    assert tuning.best is tuning.trials[0] and tuning.best.exponent == -10


@pytest.mark.parametrize("limit", [{"target_grad_norm_sq": 1e9}, {"max_bytes": 0}])
def test_nothing_is_tuned_where_no_step_is_taken(limit):
    """All steps tied, and the smallest one, far below the range, was the best."""
    (name,) = limit
    said = rf"GD is not tuned: its run with seed 0 ends at its start, by {name.partition('_grad')[0]}, where"
    with pytest.raises(ConfigError, match=said):
        mpicomp.tune(GD(), Quadratics(d=20), workers=2, rounds=20, exponents=(0, 1), **limit)
