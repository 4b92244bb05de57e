"""The cost of a call of ``Aggregator``, beside a dense Allreduce and beside its compressor alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicomp.compressors import Identity, Natural, TopK
from mpicomp.compressors.base import Compressor
from mpicomp.keys import Key
from mpicomp.lab.bench.together import seconds_a_call
from mpicomp.loops.aggregator import Aggregator
from mpicomp.methods import DCGD, EF21SGDM, DoubleSqueeze

DIMENSIONS = (10**4, 10**6, 25 * 10**6)
METHODS = (
    (DCGD(Identity()), Identity()),
    (DCGD(Natural()), Natural()),
    (EF21SGDM(TopK(k=0.01), eta=0.1, start="compressed"), TopK(k=0.01)),
    (DoubleSqueeze(TopK(k=0.01), TopK(k=0.01), gamma=1.0), TopK(k=0.01)),
)


def aggregate_cost(d: int, repeats: int = 7) -> Iterator[dict[str, Any]]:
    """Time one call with float32 gradients in R^d, a worker a rank; yield a row a method.  Collective.

    Two others are timed in turn with the call.  One is MPI's Allreduce of the dense float32 vectors.  The
    other is the method's compressor alone: each rank compresses once and decompresses a message for each
    worker, all ranks at once.  Each time is the median of ``repeats`` timings, in seconds.  A row also has
    the bytes up and down for each worker and call, and the mean seconds of a call by phase.
    """
    comm = MPI.COMM_WORLD
    calls = max(1, min(50, 2 * 10**6 // d))
    draw = np.random.default_rng(comm.rank)
    gradients = cycle([draw.standard_normal(d, dtype=np.float32) for _ in range(4)])
    for method, C in METHODS:
        with Aggregator(method, like=np.zeros(d, np.float32)) as agg:
            agg(next(gradients))  # the first call sends what only the first call sends
            contestants: dict[str, Callable[[Any], object]] = {
                "call": agg,
                "allreduce": partial(_allreduce, comm),
                "compressor": partial(_alone, C, comm.size),
            }
            timed: dict[str, list[float]] = {name: [] for name in contestants}
            for _ in range(repeats):
                for name, contestant in contestants.items():
                    timed[name].append(seconds_a_call(comm, contestant, gradients, calls))
            phases = {name: seconds / (repeats * calls + 1) for name, seconds in agg.seconds.items()}
            seconds = {name: float(np.median(found)) for name, found in timed.items()}
            yield {
                "method": repr(method),
                "d": d,
                "ranks": comm.size,
                "seconds": seconds["call"],
                "allreduce_seconds": seconds["allreduce"],
                "compressor_seconds": seconds["compressor"],
                "bytes_up": agg.ledger.up_bytes // (comm.size * agg.steps),
                "bytes_down": agg.ledger.down_bytes // (comm.size * agg.steps),
                "phases": phases,
            }


def _allreduce(comm: MPI.Comm, gradient: Any) -> Any:
    mean = np.empty_like(gradient)
    comm.Allreduce(gradient, mean)
    mean /= comm.size
    return mean


def _alone(C: Compressor, workers: int, gradient: Any) -> None:
    """Compress one message, and decode it as often as there are workers."""
    key = Key(0, 0, 0, workers)
    message, mean = C.compress(gradient, key), np.zeros_like(gradient)
    for _ in range(workers):
        C.decompress_add(message, mean, key, 1 / workers)
