"""Send and receive point-to-point MPI messages without blocking, in pieces if they are long.

A message longer than ``chunk`` bytes travels in ``pieces``, so counts above 2^31 never reach MPI.  Waiting
ranks give way to other processes (see ``waiting``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from mpi4py import MPI

from mpicomp import kernels
from mpicomp.base.bits import Bytes
from mpicomp.transports import pieces
from mpicomp.transports.arrivals import Arrivals
from mpicomp.transports.base import shares_of
from mpicomp.transports.coming import MOST
from mpicomp.transports.counters.base import MESSAGES
from mpicomp.transports.inbox import Inbox
from mpicomp.transports.mpi_buffers import mpi_buffer
from mpicomp.transports.ranks import ERROR, Ranks
from mpicomp.transports.waiting import Patience
from mpicomp.transports.watchdog import Watchdog


class PointToPoint(Ranks):
    """n workers in contiguous shares over the ranks of ``comm``, and messages between these ranks.

    A message's tag has its status, and the number of its pieces.

    chunk  the longest piece handed to MPI, in bytes; longer if a message would have too many pieces
    """

    _watchdog: Watchdog | None = None

    def __init__(self, n: int, comm: MPI.Comm, patience: Patience, dedicated: bool, chunk: int) -> None:
        super().__init__()
        self._chunk = chunk
        self._inbox = Inbox()
        self._patience = patience
        # Private communicators, so that nothing left over from another run can be received here.
        self.messages, self._measurements = comm.Dup(), comm.Dup()
        self._share_out(shares_of(n, comm.size, dedicated))

    def _share_out(self, shares: Sequence[range]) -> None:
        """Set this rank's fields from the communicators and ``shares``, the workers of each rank."""
        self._place(self.messages.rank, shares)
        self.messages.Set_name(MESSAGES)
        self._may_speak = not self.is_server and not self.hosted  # no other message can say its stop
        # The sends under way; each request keeps its message's memory alive.
        self._requests: deque[MPI.Request] = deque()

    def post(
        self, comm: MPI.Comm, message: Bytes, tag: int, dest: int = 0, longest: int | None = None
    ) -> None:
        """Start to send ``message``, in pieces of at most ``longest`` bytes."""
        message, kind = mpi_buffer(message)
        for piece, its_tag in pieces.cut(message, tag, min(longest or self._chunk, self._chunk)):
            self._requests.append(comm.Isend([piece, kind], dest=dest, tag=its_tag))

    def wait_for_sends(self, comm: MPI.Comm) -> None:
        with self._waiting(comm):
            self._patience.until(self._all_sent)

    def _all_sent(self) -> bool:
        while self._requests:  # one by one: Testall would hide what kind of error it was
            if not self._requests[0].Test():
                return False
            self._requests.popleft()
        return True

    def arrivals(self, comm: MPI.Comm, ranks: Iterable[int], most: int = MOST) -> Arrivals:
        device = partial(self._device, comm)
        return Arrivals(comm, ranks, device, self._inbox, self._patience, most)

    def _device(self, comm: MPI.Comm, status: int) -> Any:
        """Where to receive a message: on the device in use if a method sent it, else on the host (None)."""
        taken = self.device_buffers and comm is self.messages and status != ERROR
        return kernels.device() if taken else None

    def _waiting(self, comm: MPI.Comm) -> AbstractContextManager[None]:
        wait = super()._waiting(comm)
        return wait if self._watchdog is None else self._watchdog.during(wait)
