"""PowerSGD layer by layer: without ``rows``, the matrices are the parts of x.  One matrix: test_powersgd.py.

Its step t is our rounds 2t and 2t+1.  The first Q of all matrices is drawn with the key of round 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Part, Parts
from mpicomp.compressors import Lossless
from mpicomp.keys import Key
from mpicomp.methods import PowerSGD
from mpicomp.problems import MLP, Problem, Quadratics
from mpicomp.text.config import parse_method, to_text
from tests.reference.powersgd import powersgd_layers
from tests.support.trajectories import (
    ROUNDS,
    Entropy,
    assert_close,
    assert_equal,
    gradients,
    mean_gradient,
    start,
    trajectory,
)

# Of rank 1, "a" and "c" are matrices of 4 by 5 and 3 by 4; of rank 2 "c" is sent whole, for 2 (3 + 4) > 12.
PARTS = Parts((Part("b", (3,)), Part("a", (4, 5)), Part("s", ()), Part("c", (3, 2, 2)), Part("row", (1, 4))))
N = 4


@dataclass(frozen=True)
class Layers(Problem):
    """Another problem whose x has the given parts."""

    problem: Problem
    given: Parts

    def dimension(self):
        return self.problem.dimension()

    def parts(self):
        return self.given

    def x0(self):
        return self.problem.x0()

    def objective(self, i, n):
        return self.problem.objective(i, n)


PROBLEM = Layers(Entropy(PARTS.size), PARTS)


@pytest.mark.parametrize("r", [1, 2])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_powersgd_is_its_transcription(r, momentum):
    """x and e_i after every step, for which the transcription has one array for each part."""
    method = PowerSGD(r, gamma=0.3 - 0.5 * momentum, values="f8", momentum=momentum)
    loop = start(method, PROBLEM, N, seed=22)
    columns = [5, 4][: 3 - r]
    drawn = Key(22, 0, None, N).shared("powersgd").normals(r * sum(columns))
    Q = [q.reshape(-1, r) for q in np.split(drawn, r * np.cumsum(columns)[:-1])]
    warm = {1: Q[0]} if r == 2 else {1: Q[0], 3: Q[1]}
    shapes = [part.shape for part in PARTS.parts]
    wanted, errors = powersgd_layers(
        gradients(PROBLEM, N), PROBLEM.x0(), method.gamma, shapes, warm, ROUNDS // 2, momentum
    )
    iterates = [loop.x.copy()]
    for t in range(ROUNDS // 2):
        loop.step(2 * t)
        assert np.array_equal(loop.x, iterates[-1])
        loop.step(2 * t + 1)
        iterates.append(loop.x.copy())
        if t < 10:  # later the mean M_i is much smaller than they are, and P far less exact than x
            for w, e in zip(loop.workers.values(), errors[t + 1], strict=True):
                np.testing.assert_allclose(w.e, e, rtol=0, atol=1e-12)
    assert_close(iterates, wanted, 1e-12)


def test_a_single_matrix_is_that_of_rows():
    """Exact."""
    problem = Entropy(30)
    layers = Layers(problem, Parts((Part("W", (5, 6)),)))
    by_rows = trajectory(start(PowerSGD(2, rows=5, gamma=0.2), problem, N), 40)
    assert_equal(trajectory(start(PowerSGD(2, gamma=0.2), layers, N), 40), by_rows)


@pytest.mark.parametrize("values", ["f8", "f4", "bf16"])
@pytest.mark.parametrize("r", [1, 2])
def test_the_virtual_iterate(r, values):
    """x - gamma mean e_i = x_0 - gamma sum mean s_i to rounding, in parts of every kind."""
    loop = start(PowerSGD(r, gamma=0.3, values=values), PROBLEM, N, seed=5)
    virtual, scale = PROBLEM.x0(), 1.0
    for t in range(ROUNDS):
        virtual -= 0.3 * mean_gradient(PROBLEM, N, loop.x)
        loop.step(2 * t)
        loop.step(2 * t + 1)
        errors = np.array([w.e for w in loop.workers.values()])
        scale = max(scale, np.abs(loop.x).max(), np.abs(errors).max())
        assert np.abs(loop.x - 0.3 * errors.mean(axis=0) - virtual).max() <= 1e-15 * (t + 10) * scale


def test_what_is_sent_whole_has_no_error():
    loop = start(PowerSGD(1, gamma=0.3, values="f8"), PROBLEM, N)
    matrices = {"a", "c"}
    for k in range(10):
        loop.step(k)
    for w in loop.workers.values():
        assert [part.name in matrices for part, _ in PARTS] == [bool(w.e[where].any()) for _, where in PARTS]


def test_the_bytes_are_those_of_the_factors_and_of_what_is_whole():
    """P in even rounds, Q and the other parts in odd ones; 4 bytes a value, on 4 workers."""
    loop = start(PowerSGD(1, gamma=0.1, down=Lossless("f4")), PROBLEM, N)
    lengths, charged = [], []
    for k in range(6):
        before = loop.ledger.up_bytes, loop.ledger.paper_bits_up, loop.ledger.paper_bits_down
        loop.step(k)
        lengths.append(loop.ledger.up_bytes - before[0])
        charged += [loop.ledger.paper_bits_up - before[1], loop.ledger.paper_bits_down - before[2]]
    assert lengths == [4 * 4 * (4 + 3), 4 * 4 * ((5 + 4) + (3 + 1 + 4))] * 3
    assert charged == [4 * 32 * 7, 4 * 32 * 7, 4 * 32 * 17, 4 * 32 * 17] * 3


def test_a_run_resumes_with_its_layers(tmp_path):
    """P and Q of all matrices are vectors, which a checkpoint can hold."""
    method, problem = PowerSGD(2, gamma=0.1, momentum=0.5, batch=16), MLP("digits", hidden=16)
    whole = mpicomp.run(method, problem, workers=4, rounds=12)
    mpicomp.run(method, problem, workers=4, rounds=7, out=tmp_path / "run")
    resumed = mpicomp.run(method, problem, workers=4, rounds=12, out=tmp_path / "run", resume=True)
    assert resumed.iterates_sha256 == whole.iterates_sha256
    values = 2 * ((16 + 64) + (10 + 16)) + 16 + 10  # of a worker in two rounds
    assert whole.ledger.up_bytes == 6 * 4 * 4 * values


def test_texts_name_neither_rows_nor_parts():
    method = PowerSGD(2, gamma=0.125)
    assert to_text(method) == "powersgd(r=2, gamma=0.125)"
    bound = method.bound(PARTS)
    assert to_text(bound) == to_text(method)
    assert parse_method(to_text(bound)).bound(PARTS) == bound != method
    assert repr(bound) == repr(method)
    assert parse_method("powersgd(r=2, rows=4, gamma=0.1)") == PowerSGD(2, 4, 0.1)
    assert PowerSGD(2, 4, 0.1).bound(PARTS) == PowerSGD(2, 4, 0.1)


def test_what_has_no_matrix_is_refused():
    with pytest.raises(
        ConfigError, match=r"no part is a matrix that r=1 shortens; the parts are x \(12,\).*rows"
    ):
        start(PowerSGD(1, gamma=0.1), Quadratics(d=12), N)
    with pytest.raises(ConfigError, match=r"no part is a matrix that r=3 shortens.*a smaller r"):
        PowerSGD(3, gamma=0.1).bound(PARTS)
    with pytest.raises(ConfigError, match=r"knows no parts of the dimension d=12\. Give rows, or call bound"):
        PowerSGD(1, gamma=0.1).replica(np.zeros(12))
    with pytest.raises(ConfigError, match="knows parts of 40 entries of the dimension d=12"):
        PowerSGD(1, gamma=0.1).bound(PARTS).replica(np.zeros(12))
    with pytest.raises(ConfigError, match="parts=3; allowed: Parts"):
        PowerSGD(1, gamma=0.1, parts=3)
    with pytest.raises(ConfigError, match="no theory step size; give gamma as a number"):
        start(PowerSGD(1, rows=3), Entropy(), N)
