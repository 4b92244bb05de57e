"""Compare and tune from Python, on all ranks: `mpicomp launch --ranks 4 -m pytest --only-mpi tests/mpi`."""

from __future__ import annotations

from dataclasses import asdict

import pytest

import mpicomp
from mpicomp import GD, MARINA, RandK
from mpicomp.problems import Quadratics
from tests.support.own_file import Centre

pytestmark = pytest.mark.mpi(min_size=2)


def test_every_rank_has_the_comparison_and_the_tuning():
    from mpi4py import MPI

    problem, options = Quadratics(d=20, noise=0.5, lam=0.1), {"workers": 5, "rounds": 20}
    methods = {"GD": GD(gamma=0.2), "MARINA": MARINA(Q=RandK(k=5), gamma=0.4)}
    comparison = mpicomp.compare(methods, problem, tune={"MARINA": (0, 1)}, seeds=[0, 1], **options)
    tuning = mpicomp.tune(methods["MARINA"], Centre(d=6), exponents=(0, 1), **options)
    rows = [[asdict(row) for row in outcome.rows] for outcome in comparison.outcomes]
    seen = (rows, comparison.tunings, comparison.table(), tuning)
    assert len(comparison.outcomes) == 4 and all(rows)
    assert all(other == seen for other in MPI.COMM_WORLD.allgather(seen))
