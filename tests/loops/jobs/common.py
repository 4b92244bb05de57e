"""This rank, and its objectives; imported before MPI is."""

from __future__ import annotations

from mpicomp import EF21SGDM, TopK
from mpicomp.transports.counters import prepare
from tests.loops.test_aggregator import PROBLEM

prepare()  # for verify_bytes, before MPI is loaded
from mpi4py import MPI  # noqa: E402

RANK = MPI.COMM_WORLD.rank
METHOD = EF21SGDM(TopK(k=3), eta=0.3)


def fs(loop):
    return {i: PROBLEM.objective(i, loop.workers) for i in loop.hosted}
