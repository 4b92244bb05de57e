"""A rank of a job that times each way of averaging: ``python -m mpicomp.lab.bench.serving.rank JSON``.

Rank 0 prints a line of JSON for each method and way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicomp.averaging.allreduce import sums
from mpicomp.compressors import Lossless, Natural, TopK
from mpicomp.lab.bench.together import seconds_a_call
from mpicomp.lab.jobs.launch import run_rank
from mpicomp.loops.aggregator import Aggregator
from mpicomp.methods import DCGD, EF21SGDM, GD, ARCTopK, DoubleSqueeze, PowerSGD
from mpicomp.methods.base import Method

METHODS: dict[str, Method] = {
    "dense": GD(gamma=1.0),
    "natural up": DCGD(Natural(), gamma=1.0, down=Lossless("f4")),
    "TopK 1 % up": EF21SGDM(TopK(k=0.01), eta=0.1, start="compressed", down=Lossless("f4")),
    "TopK 1 % both ways": DoubleSqueeze(TopK(k=0.01), TopK(k=0.01), gamma=1.0),
    "ARC-Top-K 1 %": ARCTopK(k=0.01, r=4, width=250, gamma=1.0, down=Lossless("f4")),
    "PowerSGD, rank 2": PowerSGD(r=2, rows=1000, gamma=1.0, down=Lossless("f4")),
}
_SECONDS = 1.0  # of calls in a row, about
_MOST = 30  # calls in a row


def measure(d: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield the seconds of a step with float32 gradients in R^d, a worker a rank; collective.

    A step is a round, and two of ARC-Top-K and PowerSGD.  Each method is served by the root and by all ranks;
    vectors that are sent whole are summed by MPI_Allreduce too, and dense ones also by a bare call.  They are
    timed in turn, ``repeats`` times.  A turn begins with a call off the clock, for TCP starts slowly on a
    connection that was idle.  Rows have the median, and the bytes a step in the busier direction of
    the busiest rank.
    """
    comm = MPI.COMM_WORLD
    draw = np.random.default_rng(comm.rank)
    gradients = cycle([draw.standard_normal(d, dtype=np.float32) for _ in range(3)])
    for label, method in METHODS.items():
        ways = {"shared": None, "sharded": comm.size} | ({"allreduce": None} if sums(method) else {})
        aggregators = {
            way: Aggregator(method, like=np.zeros(d, np.float32), server=way, blocks=blocks)
            for way, blocks in ways.items()
        }
        contestants: dict[str, Callable[[Any], object]] = dict(aggregators)
        if label == "dense":
            contestants["bare allreduce"] = _bare(comm)
        timed: dict[str, list[float]] = {way: [] for way in contestants}
        calls = {way: _calls(comm, call, gradients) for way, call in contestants.items()}
        for _ in range(repeats):
            for way, call in contestants.items():
                call(next(gradients))
                timed[way].append(seconds_a_call(comm, call, gradients, calls[way]))
        for way, found in timed.items():
            crossed = _busiest(comm, aggregators[way], way) if way in aggregators else None
            seconds = float(np.median(found))
            yield {"method": label, "server": way, "d": d, "seconds": seconds, "busiest_bytes": crossed}
        for aggregator in aggregators.values():
            aggregator.close()


def _bare(comm: MPI.Comm) -> Callable[[Any], object]:
    total: Any = None

    def call(gradient: Any) -> None:
        nonlocal total
        total = np.empty_like(gradient) if total is None else total
        comm.Allreduce(gradient, total)

    return call


def _calls(comm: MPI.Comm, call: Callable[[Any], object], gradients: Iterator[Any]) -> int:
    """How many calls to time in a row; before that, connections are made and messages take their sizes."""
    for _ in range(2):
        call(next(gradients))
    seconds = seconds_a_call(comm, call, gradients, 1)
    calls: int = comm.bcast(int(np.clip(_SECONDS / seconds, 2, _MOST)))
    return calls


def _busiest(comm: MPI.Comm, aggregator: Aggregator, way: str) -> float | None:
    """The message bytes a step that the busiest rank sends, or gets if these are more.

    None where MPI chooses them.  Where every rank serves its share, the ranks together get what they send.
    """
    if way == "allreduce":
        return None
    sent = comm.allgather(aggregator.transport.sent[0])
    got_by_root = sum(sent[1:]) if way == "shared" else 0
    return max(*sent, got_by_root) / aggregator.steps


def main(text: str) -> None:
    """Time the rounds that the JSON ``text`` lists."""
    asked = json.loads(text)
    for d in asked["dimensions"]:
        for row in measure(d, asked["repeats"]):
            if MPI.COMM_WORLD.rank == 0:
                print(json.dumps({"ranks": MPI.COMM_WORLD.size, **row}), flush=True)


if __name__ == "__main__":
    run_rank(main)
