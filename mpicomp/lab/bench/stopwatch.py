"""The least time of a call over several inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter, thread_time
from typing import TypeVar

from mpicomp.kernels.threads import threads

T = TypeVar("T")


def fastest(call: Callable[[T], object], inputs: Iterable[T]) -> float:
    """The least time of a call, in seconds: CPU time if kernels use one thread, else wall-clock time.

    The inputs should differ: on one input the processor learns to predict every branch.  CPU time excludes
    the time in which other processes have the core, but not delays from their use of memory bandwidth.
    """
    now = thread_time if threads() == 1 else perf_counter
    times = []
    for value in inputs:
        started = now()
        call(value)
        times.append(now() - started)
    return min(times)
