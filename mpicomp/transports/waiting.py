"""Wait for MPI without taking time from others: give way between polls, and sleep where ranks share cores.

An MPI library waits by polling without end.  Nothing is faster if every rank has a core to itself.  But any
other process on that core then waits for the rank's share of it to end, and so does a rank that was to send.
So a waiting rank gives way after each poll, which takes some half a microsecond.  If there are more ranks
than cores, a waiting rank still takes time from the ranks that it waits for: after 1 ms it sleeps.
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
        """Call ``come`` until it returns true; give way, or after 1 ms sleep if ranks share cores."""
        begun = time.monotonic()
        while not come():
            if self._crowded and time.monotonic() - begun >= _EAGER:
                time.sleep(_NAP)
            else:
                os.sched_yield()


def _crowded(comm: MPI.Comm) -> bool:
    """Whether this host has more ranks of ``comm`` than cores that they may use."""
    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    together = set().union(*host.allgather(cores()))
    ranks = host.size
    host.Free()
    return ranks > len(together)
