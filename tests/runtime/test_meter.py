"""What a run notes about its workers: passes over the samples, total error, who took part."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import HardThreshold, Identity, RandK, TopK
from mpicomp.keys import Key
from mpicomp.methods import DIANA, EF14, EF21, GD
from mpicomp.methods.parameters import BatchSize
from mpicomp.methods.support.stochastic import batch_size, gradient
from mpicomp.problems import Logistic, Objective, Problem, Quadratics
from mpicomp.runtime.loop import Loop
from mpicomp.transports.local import Local

PROBLEM = Logistic("digits", lam=1e-2)
QUADRATICS = Quadratics(d=12, noise=0.5, lam=0.1)


@dataclass(frozen=True)
class Batches(GD):
    """GD on batches: a method of the tests' own, in which worker 1 takes part in even rounds only."""

    batch: BatchSize = None

    def senders(self, key):
        return range(key.n) if key.round % 2 == 0 else [i for i in range(key.n) if i != 1]

    def worker_step(self, w, r, f, key):
        g = gradient(f, r.x, self.batch, key)
        assert (g == gradient(f, r.x, self.batch, key)).all()  # the same key, the same samples
        return super().worker_step(w, r, replace(Fixed(), g=g), key)


@dataclass
class Fixed(Objective):
    g: np.ndarray | None = None

    def value(self, x):
        raise NotImplementedError

    def grad(self, x):
        return self.g


def test_epochs_count_passes_over_the_samples():
    n, m = 3, 1797 // 3
    rows = mpicomp.run(GD(gamma=0.1), PROBLEM, workers=n, rounds=4, every=2).rows
    assert [row.epochs for row in rows] == [0, 2, 4]
    rows = mpicomp.run(Batches(gamma=0.1, batch=10), PROBLEM, workers=n, rounds=4, every=2).rows
    # two batches of ten a round; worker 1 sits out one round in two
    expected = [0, 10 / m * (2 * 4 + 2) / 3, 10 / m * (2 * 8 + 4) / 3]
    assert [row.epochs for row in rows] == pytest.approx(expected)


def test_who_does_not_take_part_sends_and_computes_nothing():
    run = mpicomp.run(Batches(gamma=0.1), QUADRATICS, workers=3, rounds=4)
    assert run.ledger.up.tolist() == [4 * 48, 2 * 48, 4 * 48]


def test_a_batch_is_a_count_or_a_fraction():
    assert batch_size(7, None) == 7
    assert [batch_size(b, 50) for b in (0.5, 0.01, 0.03, 0.99)] == [25, 1, 2, 50]
    with pytest.raises(ConfigError, match="give a number"):
        batch_size(0.5, None)
    f, x = PROBLEM.objective(0, 3), np.ones(64) / 8
    key = Key(1, 2, 0, 3)
    assert (gradient(f, x, None, key) == f.grad(x)).all()
    assert (gradient(f, x, f.samples, key) == f.grad(x)).all()
    assert (gradient(f, x, 5, key) != gradient(f, x, 5, key.of(1))).any()


@pytest.mark.parametrize("C", [TopK(3, values="f8"), HardThreshold(0.5, "f8")])
def test_the_total_error_of_ef14_is_that_of_its_memories(C):
    n, gamma = 4, 0.25
    loop = Loop(EF14(C, gamma=gamma), QUADRATICS, Local(n), seed=0)
    total = 0.0
    for k in range(10):
        loop.step(k)
        total += np.mean([np.sum((w.e / gamma) ** 2) for w in loop.workers.values()])
    assert total > 0
    assert loop.observe().error == pytest.approx(total, rel=1e-14)


def test_the_total_error_of_ef21_is_that_of_its_gradient_estimates():
    n = 4
    loop = Loop(EF21(TopK(3, values="f8"), gamma=0.1), QUADRATICS, Local(n), seed=0)
    fs, total = [QUADRATICS.objective(i, n) for i in range(n)], 0.0
    for k in range(10):
        x = loop.x.copy()
        loop.step(k)
        total += np.mean([np.sum((f.grad(x) - loop.workers[i].g) ** 2) for i, f in enumerate(fs)])
    assert loop.observe().error == pytest.approx(total, rel=1e-12)


def test_without_compression_there_is_no_error():
    for method in (EF14(Identity("f8"), gamma=0.25), EF21(Identity("f8"), gamma=0.1)):
        assert mpicomp.run(method, QUADRATICS, workers=3, rounds=5).rows[-1].error <= 1e-25


def test_without_error_feedback_the_total_error_is_no_number(tmp_path):
    """It is None, not 0, which would be the least of all: in rows, in their table, and in a comparison's."""
    methods = {"GD": GD(gamma=0.1), "DIANA": DIANA(RandK(3), gamma=0.01), "EF14": EF14(TopK(3), gamma=0.01)}
    found = mpicomp.compare(methods, QUADRATICS, workers=3, rounds=5, y="error", out=tmp_path / "of")
    assert {o.label: o.rows[-1].error is None for o in found.outcomes} == dict(
        GD=True, DIANA=True, EF14=False
    )
    assert [o.rows for o in mpicomp.load(tmp_path / "of").outcomes] == [o.rows for o in found.outcomes]
    lines = [line.split(" | ") for line in found.table().splitlines() if line.startswith("| ")]
    named = {cells[0].strip("| "): cells[lines[0].index("total error")] for cells in lines}
    assert named["GD"] == named["DIANA"] == "-" and float(named["EF14"]) > 0


@dataclass(frozen=True)
class Reusing(Problem):
    """Objectives that write every gradient into one array."""

    def dimension(self):
        return 3

    def objective(self, i, n):
        return Reuse()


class Reuse(Objective):
    def __init__(self):
        self.g = np.zeros(6)

    def value(self, x):
        return float(np.sum(x * x) / 2)

    def grad(self, x):
        self.g[2:5] = x - 1
        return self.g[2:5]


def test_a_gradient_in_the_array_of_the_one_before_is_refused():
    with pytest.raises(ConfigError, match="return a new one"):
        mpicomp.run(GD(gamma=0.1), Reusing(), workers=1, rounds=5)


@pytest.mark.parametrize("stop", [3, 6])
def test_the_meters_are_part_of_a_checkpoint(tmp_path, stop):
    options = {"workers": 3, "every": 3, "out": tmp_path / "run"}
    method = EF14(TopK(3), gamma=0.1)
    mpicomp.run(method, QUADRATICS, rounds=stop, **options)
    resumed = mpicomp.run(method, QUADRATICS, rounds=12, resume=True, **options)
    whole = mpicomp.run(method, QUADRATICS, rounds=12, workers=3, every=3)
    assert [(r.epochs, r.error) for r in resumed.rows] == [(r.epochs, r.error) for r in whole.rows]


class Remembering(GD):
    @dataclass
    class Replica:
        x: np.ndarray
        g: np.ndarray
        previous: object = None


def test_a_record_holds_arrays_and_numbers():
    """All else could not be saved, nor compared between ranks."""
    with pytest.raises(ConfigError, match=r"Remembering\.Replica\.previous is None; allowed: arrays and num"):
        mpicomp.run(Remembering(gamma=0.1), QUADRATICS, workers=3, rounds=1, transport=Local(3))
