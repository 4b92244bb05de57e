"""Time a call that all ranks make together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from mpi4py import MPI


def seconds_a_call(
    comm: MPI.Comm, call: Callable[[Any], object], gradients: Iterator[Any], calls: int
) -> float:
    """Mean seconds of a call, over ``calls`` calls with the next ones of ``gradients``; collective."""
    comm.Barrier()
    started = perf_counter()
    for _ in range(calls):
        call(next(gradients))
    comm.Barrier()
    return (perf_counter() - started) / calls
