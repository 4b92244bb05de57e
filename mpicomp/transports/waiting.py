"""Wait for MPI without burning a core: poll for 1 ms, then sleep between polls.

An MPI library waits by polling without end.  Nothing is faster if every rank has a core of its own.  If ranks
share cores, a waiting rank takes time from the ranks that it waits for; only then do these waits sleep.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from mpi4py import MPI

from mpicomp.base.cores import cores

_EAGER = 1e-3  # seconds of polling without a sleep: most waits of short rounds are over by then
_NAP = 1e-4  # seconds of sleep between polls


class Patience:
    """How the ranks of ``comm`` wait; collective."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._crowded = _crowded(comm)

    def until(self, come: Callable[[], object]) -> None:
        """Call ``come`` until it returns true.  If ranks share cores, sleep between calls after 1 ms."""
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
    together = set().union(*host.allgather(cores()))
    ranks = host.size
    host.Free()
    return ranks > len(together)
