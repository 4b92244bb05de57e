"""BLAS in one thread: how it adds up depends on the number of threads, and runs are compared by hashes."""

from __future__ import annotations

from functools import cache
from typing import Any


def one_thread() -> Any:
    """From now on numpy's and scipy's BLAS compute in one thread; as a context manager, until it is left."""
    import scipy.linalg  # noqa: F401 - what is limited are libraries that are loaded, and scipy has its own
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="blas")


@cache  # looking through the loaded libraries takes a millisecond, and each worker asks
def one_thread_for_good() -> None:
    """The same until the process ends."""
    one_thread()
