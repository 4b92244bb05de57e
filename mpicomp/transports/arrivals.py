"""Receive messages in a given order of ranks, and post the receives for later ones in advance.

MPI sends a message above its eager limit (64 KiB between hosts, for Open MPI) only after the receiver has
posted its receive.  This takes a round trip.  If receives are posted one after the other, n messages take n
round trips.  So a rank that waits for one message also posts the receives for the next ones, as soon as they
are announced, until ``AHEAD`` bytes are under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from mpi4py import MPI

from mpicomp.base.bits import Bytes
from mpicomp.transports import pieces
from mpicomp.transports.base import AHEAD
from mpicomp.transports.coming import MOST, Coming
from mpicomp.transports.inbox import Inbox
from mpicomp.transports.mpi_buffers import mpi_buffer
from mpicomp.transports.waiting import Patience


@dataclass
class _Arrival:
    """A message of ``count`` pieces.  Each has ``piece`` bytes; the last may be shorter."""

    rank: int
    tag: int
    count: int
    piece: int
    device: Any
    buffer: Bytes
    requests: deque[MPI.Request] = field(default_factory=deque)  # of pieces that may not be here yet
    last: int = 0  # bytes of the last piece, once the message is here

    @property
    def length(self) -> int:
        return (self.count - 1) * self.piece + self.last

    def ask(self, comm: MPI.Comm, first: MPI.Message) -> None:
        """Post the receives of all pieces; ``first`` is the first one, already matched."""
        buffer, kind = mpi_buffer(self.buffer)
        parts = [[buffer[i * self.piece : (i + 1) * self.piece], kind] for i in range(self.count)]
        self.requests.append(first.Irecv(parts[0]))
        tag = pieces.tag_of_piece(self.tag, self.count)
        self.requests.extend(comm.Irecv(part, self.rank, tag) for part in parts[1:])

    def is_here(self) -> bool:
        """Test whether all pieces are here."""
        status = MPI.Status()
        while self.requests:
            if not self.requests[0].Test(status):
                return False
            self.requests.popleft()
            self.last = status.Get_count(MPI.BYTE)
        return True


class Arrivals(Coming):
    """The messages that ``ranks`` send over ``comm``, received in the order of ``ranks``.

    device  a message's tag -> the device to receive it on, or None for the host's memory
    most    the number of messages under way at a time
    """

    def __init__(
        self,
        comm: MPI.Comm,
        ranks: Iterable[int],
        device: Callable[[int], Any],
        inbox: Inbox,
        patience: Patience,
        most: int = MOST,
    ) -> None:
        super().__init__(inbox)
        self._comm, self._device = comm, device
        self._patience, self._most = patience, most
        self._awaited = deque(ranks)
        self._under_way: deque[_Arrival] = deque()
        self._bytes = 0  # under way

    def __len__(self) -> int:
        return len(self._awaited) + len(self._under_way)

    def take(self) -> tuple[Bytes, int]:
        self.let_go()
        try:
            self._patience.until(self._first_is_here)
        except BaseException:  # an error of MPI's, or Ctrl-C
            self._abandon()
            raise
        message = self._taken = self._under_way.popleft()
        self._bytes -= message.count * message.piece
        return message.buffer[: message.length], message.tag

    def _abandon(self) -> None:
        """Expect no more messages.  Keep the memory of those under way: MPI may still write there."""
        for message in [*self._under_way, *filter(None, [self._taken])]:
            self._inbox.abandon(message.buffer)
        self._awaited.clear()
        self._under_way.clear()
        self._taken = None

    def _first_is_here(self) -> bool:
        self._ask()
        return bool(self._under_way) and self._under_way[0].is_here()

    def _ask(self) -> None:
        """Post the receives of announced messages, up to the limits."""
        status = MPI.Status()
        while self._awaited and self._bytes < AHEAD and len(self._under_way) < self._most:
            first = self._comm.Improbe(self._awaited[0], MPI.ANY_TAG, status)
            if first is None:
                return
            rank = self._awaited.popleft()
            (tag, count), piece = pieces.read(status.tag), status.Get_count(MPI.BYTE)
            device = self._device(tag)
            message = _Arrival(rank, tag, count, piece, device, self._inbox.take(count * piece, device))
            self._under_way.append(message)  # before MPI may fail, so that its memory is kept then
            self._bytes += count * piece
            message.ask(self._comm, first)
