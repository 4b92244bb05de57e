"""Waiting where ranks share cores.

An MPI library waits by asking, without end, whether something has come.  Nothing is faster where every rank
has a core of its own.  Where ranks share cores, a waiting rank takes time from the ranks it waits for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from mpi4py import MPI

_EAGER = 1e-3  # seconds of asking without a pause: most waits of short rounds are over by then
_NAP = 1e-4  # seconds


class Patience:
    """How the ranks of ``comm`` wait; collective."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._crowded = _crowded(comm)

    def until(self, come: Callable[[], object]) -> None:
        """Call ``come`` until it is true.  Where ranks share cores, sleep between calls after a while."""
        begun = time.monotonic()
        while not come():
            if self._crowded:
                if time.monotonic() - begun < _EAGER:
                    os.sched_yield()
                else:
                    time.sleep(_NAP)


def _crowded(comm: MPI.Comm) -> bool:
    """Whether this host has more ranks of ``comm`` than cores that they may use."""
    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    cores = set().union(*host.allgather(_cores()))
    ranks = host.size
    host.Free()
    return ranks > len(cores)


def _cores() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))  # macOS binds no process to a core
