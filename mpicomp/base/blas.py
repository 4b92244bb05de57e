"""Limit BLAS to one thread: its rounding depends on their number, and runs are compared by hashes."""

from __future__ import annotations

from functools import cache
from typing import Any


def one_thread() -> Any:
    """Limit numpy's and scipy's BLAS to one thread, from the call on.

    Used as a context manager, it restores the former number of threads at the end.
    """
    return _libraries().limit(limits=1, user_api="blas")


@cache  # the search through the loaded libraries takes a millisecond, and some call in every round
def _libraries() -> Any:
    import scipy.linalg  # noqa: F401 - loads scipy's own BLAS: only loaded libraries are limited
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@cache  # every worker calls
def one_thread_for_good() -> None:
    """Limit numpy's and scipy's BLAS to one thread until the process ends."""
    one_thread()
