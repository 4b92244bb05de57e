"""Timing a call on several inputs in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter, thread_time
from typing import TypeVar

from mpicomp.kernels.threads import threads

T = TypeVar("T")


def fastest(call: Callable[[T], object], inputs: Iterable[T]) -> float:
    """The least time of a call, in seconds: the processor's for one thread, the wall clock's for several.

    The inputs should differ: on one and the same the processor learns each branch by heart.  With one thread,
    what other processes take of the core does not count; what they take of the memory's bandwidth does.
    """
    now = thread_time if threads() == 1 else perf_counter
    times = []
    for value in inputs:
        started = now()
        call(value)
        times.append(now() - started)
    return min(times)
