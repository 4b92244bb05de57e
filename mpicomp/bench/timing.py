"""Timing a call on several inputs in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import thread_time
from typing import TypeVar

T = TypeVar("T")


def fastest(call: Callable[[T], object], inputs: Iterable[T]) -> float:
    """The least processor time of a call of one thread, in seconds.

    The inputs should differ: on one and the same the processor learns each branch by heart.  What other
    processes take of the core does not count; what they take of the memory's bandwidth does.
    """
    times = []
    for value in inputs:
        started = thread_time()
        call(value)
        times.append(thread_time() - started)
    return min(times)
