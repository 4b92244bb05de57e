"""Work on a long vector in slices, one for each of ``MPICOMP_NUM_THREADS`` threads (default 1).

Slices start where a word of the message, a block of a sum and a byte of trits start.  So threads write to
different bytes, and the result is that of one thread.  The compiled kernels release Python's global lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from mpicomp.base.errors import ConfigError

T = TypeVar("T")

UNIT = 2**14 * 5  # coordinates: a multiple of chunks of 1024 and of 1280, and enough to be worth a thread


def sliced(work: Callable[[int, int], T], count: int) -> list[T]:
    """Call ``work(start, stop)`` for slices of 0 .. count in parallel; return the results in order."""
    parts = 1 if count < 2 * UNIT else min(threads(), count // UNIT)
    if parts == 1:
        return [work(0, count)]
    step = -(-count // (parts * UNIT)) * UNIT
    return list(_pool().map(lambda start: work(start, min(start + step, count)), range(0, count, step)))


@cache
def threads() -> int:
    """The number of threads that a rank may use.

    Raises ``ConfigError`` if the variable is no such number.
    """
    given = os.environ.get("MPICOMP_NUM_THREADS", "1")
    if not given.isdecimal() or int(given) < 1:
        raise ConfigError(f"MPICOMP_NUM_THREADS={given}; allowed: a positive integer, the threads of a rank.")
    return int(given)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads(), thread_name_prefix="mpicomp")


os.register_at_fork(after_in_child=_pool.cache_clear)  # the child has none of its threads, and would wait
