"""Methods whose server keeps a model of its own: the run is measured at that, and gives that back."""

from __future__ import annotations

import numpy as np
import pytest

import mpicomp
from mpicomp.compressors import RandK, TopK
from mpicomp.methods import EF21P, M3, MARINAP, MCM, METHODS, TwoDirection
from tests.reference.ef21p import ef21p
from tests.reference.mcm import mcm
from tests.support.bidirectional import in_rounds
from tests.support.trajectories import (
    PLACES,
    WHOLE,
    beginning,
    codec,
    grad_norm_sq,
    gradients,
    objective_value,
    server_codec,
    start,
)

PROBLEM, N = PLACES[0]
UP, DOWN = RandK(3, values="f8"), RandK(4, values="f8")
MODELS = [MCM(UP, DOWN, gamma=0.02), EF21P(TopK(3, values="f8"), UP, gamma=0.02)]
every_model = pytest.mark.parametrize("method", MODELS, ids=lambda m: type(m).__name__)
ROUNDS = 30


def models(method, seed: int) -> tuple[list, list]:
    """w^0, .., and x^0, .. of the transcriptions."""
    x0, up = PROBLEM.x0(), codec(UP, seed, N)
    first = beginning(method.start, UP, seed, N)
    if isinstance(method, MCM):
        rates, down = (1 / (2 * (1 + UP.omega(12, N))), 1 / (2 * (1 + DOWN.omega(12, N)))), DOWN
        way = up, server_codec(down, seed, N)
        return mcm(in_rounds(PROBLEM, N), N, x0, 0.02, *rates, *way, ROUNDS, first)
    way = up, server_codec(method.C, seed, N)
    return ef21p(gradients(PROBLEM, N), x0, 0.02, 1 / (1 + UP.omega(12, N)), *way, ROUNDS, first)


def test_which_they_are():
    """2Direction's z, of which its theorem speaks, is on every rank; MARINA-P and M3 hash x itself."""
    assert {m for m in METHODS.values() if m.model} == {MCM, EF21P, MARINAP, M3}
    assert TwoDirection.iterate == "z"


@every_model
def test_rows_and_result_are_those_of_the_servers_model(method):
    """f and |grad f|^2 at x, and not at the workers' w."""
    run = mpicomp.run(method, PROBLEM, workers=N, rounds=ROUNDS, every=1, seed=6)
    ws, xs = models(method, 6)
    for row, w, x in zip(run.rows, ws, xs, strict=True):
        assert row.f == pytest.approx(objective_value(PROBLEM, N, x), rel=1e-12)
        assert row.grad_norm_sq == pytest.approx(grad_norm_sq(PROBLEM, N, x), rel=1e-10)
        if row.round > 0:
            assert row.grad_norm_sq != pytest.approx(grad_norm_sq(PROBLEM, N, w), rel=1e-9)
    assert run.x == pytest.approx(xs[-1], rel=1e-12)
    assert run.summary()["f"] == run.rows[-1].f


@every_model
def test_what_a_run_hashes_is_what_every_rank_holds(method):
    loop = start(method, PROBLEM, N, seed=6)
    for k in range(ROUNDS):
        loop.step(k)
    run = mpicomp.run(method, PROBLEM, workers=N, rounds=ROUNDS, every=ROUNDS, seed=6)
    assert run.iterates_sha256 == loop.digest.value.hex()
    assert np.array_equal(loop.x, loop.replica.w) and np.array_equal(run.x, loop.server.x)
    assert not np.array_equal(loop.x, run.x)


@every_model
def test_observing_changes_no_byte(method):
    """What is told for an observation is in no count, however often there is one."""
    runs = [mpicomp.run(method, PROBLEM, workers=N, rounds=ROUNDS, every=e, seed=6) for e in (1, ROUNDS)]
    books = [(r.iterates_sha256, r.ledger.up.tolist(), r.ledger.down.tolist()) for r in runs]
    assert books[0] == books[1]


@every_model
def test_a_resumed_run_has_the_same_rows(method, tmp_path):
    options = {"workers": N, "every": 5, "seed": 6}
    whole = mpicomp.run(method, PROBLEM, rounds=20, **options)
    mpicomp.run(method, PROBLEM, rounds=10, out=tmp_path / "r", **options)
    last = mpicomp.run(method, PROBLEM, rounds=20, out=tmp_path / "r", resume=True, **options)
    assert [(r.f, r.grad_norm_sq) for r in last.rows] == [(r.f, r.grad_norm_sq) for r in whole.rows]
    assert np.array_equal(last.x, whole.x)


@every_model
def test_a_method_that_begins_anew_does_so_at_the_servers_model(method):
    loop = start(method, PROBLEM, N)
    for k in range(5):
        loop.step(k)
    model = loop.model().copy()
    assert not np.array_equal(model, loop.x)
    loop.restart(5)
    assert np.array_equal(loop.x, model) and np.array_equal(loop.model(), model)


def test_the_preserved_model_is_nearer_to_the_optimum():
    """What MCM preserves it for: E f(w) = E f(x) + the variance of the downlink, for quadratics and all f
    that are convex (Jensen).  Means over the last 100 of 300 rounds."""
    problem, n = PLACES[1]
    loop = start(MCM(WHOLE, RandK(2, values="f8"), gamma=0.05), problem, n)
    at_x, at_w = [], []
    for k in range(300):
        loop.step(k)
        at_x.append(objective_value(problem, n, loop.server.x))
        at_w.append(objective_value(problem, n, loop.replica.w))
    assert np.mean(at_x[-100:]) < np.mean(at_w[-100:])
