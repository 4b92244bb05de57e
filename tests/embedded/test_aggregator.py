"""The aggregator in a loop of one's own is the run, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import mpicomp
from mpicomp import Aggregator, Descent
from mpicomp.methods import METHODS
from mpicomp.methods.support.estimating import EstimatingMethod
from tests.support import every_combination

PROBLEM, WORKERS = every_combination.PROBLEM, every_combination.WORKERS
OF_THE_FORM = [m for m in every_combination.methods() if isinstance(m, EstimatingMethod)]


def test_every_method_of_the_form_is_here():
    of_the_form = {m for m in METHODS.values() if issubclass(m, EstimatingMethod)}
    assert {type(m) for m in OF_THE_FORM} == of_the_form


@pytest.mark.parametrize("method", OF_THE_FORM, ids=str)
def test_estimate_and_step_are_the_run(method):
    run = mpicomp.run(method, PROBLEM, workers=WORKERS, rounds=9, seed=5)
    x = PROBLEM.x0()
    agg = Aggregator(run.method, like=x, workers=WORKERS, seed=5)
    fs = {i: PROBLEM.objective(i, WORKERS) for i in agg.hosted}
    while agg._round < 9:
        x -= run.method.step * agg(fs, at=x)
    agg.close()
    assert x.tobytes() == run.x.tobytes()
    assert agg.ledger.up.tolist() == run.ledger.up.tolist()
    assert agg.ledger.down.tolist() == run.ledger.down.tolist()
