"""Messages that arrive: taken in order, asked for ahead of their turn.

A message above a limit of MPI's own (64 KiB between hosts, for Open MPI) is only announced; it is sent
when the receiver asks for it, and there a round trip later.  Asked for one after the other, n messages
take n round trips.  So a rank that waits for one message also asks for the next ones, as they are announced,
until ``AHEAD`` bytes are on their way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mpi4py import MPI

from mpicomp.base.bits import Bytes
from mpicomp.transports.base import AHEAD
from mpicomp.transports.inbox import Inbox, mpi_buffer
from mpicomp.transports.waiting import Patience

MOST = 64  # messages under way: short messages reach this limit before their bytes reach AHEAD


@dataclass
class _Arrival:
    """A message whose first piece is under way or has arrived."""

    rank: int
    tag: int
    device: Any
    length: int  # bytes asked for so far
    buffer: Bytes
    request: MPI.Request


class Arrivals:
    """The messages that ``ranks`` send over ``comm``, in that order.

    chunk   the length of a piece that another follows
    device  where to receive, by the tag: None for the host
    most    messages under way at a time
    """

    def __init__(
        self,
        comm: MPI.Comm,
        ranks: Iterable[int],
        chunk: int,
        device: Callable[[int], Any],
        inbox: Inbox,
        patience: Patience,
        most: int = MOST,
    ) -> None:
        self._comm, self._chunk, self._device = comm, chunk, device
        self._inbox, self._patience, self._most = inbox, patience, most
        self._awaited = deque(ranks)
        self._under_way: deque[_Arrival] = deque()
        self._bytes = 0  # under way
        self._taken: _Arrival | None = None

    def __len__(self) -> int:
        """The number of messages not yet taken."""
        return len(self._awaited) + len(self._under_way)

    def take(self) -> tuple[Bytes, int]:
        """The next message, whose bytes are valid until another is taken, and its tag.

        If that fails nothing more is to be taken.
        """
        self.let_go()
        try:
            self._patience.until(self._first_is_here)
            message = self._taken = self._under_way.popleft()
            self._bytes -= message.length
            self._receive_the_rest(message)
        except BaseException:  # an error of MPI's, or Ctrl-C
            self._abandon()
            raise
        return message.buffer[: message.length], message.tag

    def let_go(self) -> None:
        """Give back the memory of the message that was taken last."""
        if self._taken is not None:
            self._inbox.give_back(self._taken.buffer, self._taken.device)
            self._taken = None

    def keep(self) -> Callable[[], None]:
        """Keep the message that was taken last, until the function that is returned is called."""
        message, self._taken = self._taken, None
        assert message is not None
        return partial(self._inbox.give_back, message.buffer, message.device)

    def _abandon(self) -> None:
        """Expect nothing more, and keep the memory of what was under way: MPI may still write there."""
        for message in [*self._under_way, *filter(None, [self._taken])]:
            self._inbox.abandon(message.buffer)
        self._awaited.clear()
        self._under_way.clear()
        self._taken = None

    def _first_is_here(self) -> bool:
        self._ask()
        return bool(self._under_way) and self._under_way[0].request.Test()

    def _ask(self) -> None:
        """Ask for announced messages, but for none behind a message that has more pieces to come."""
        while self._awaited and self._bytes < AHEAD and len(self._under_way) < self._most:
            if self._under_way and self._under_way[-1].length == self._chunk:
                return
            status = MPI.Status()
            piece = self._comm.Improbe(self._awaited[0], MPI.ANY_TAG, status)
            if piece is None:
                return
            rank, tag, length = self._awaited.popleft(), status.tag, status.Get_count(MPI.BYTE)
            device = self._device(tag)
            buffer = self._inbox.take(length, device)
            request = piece.Irecv(mpi_buffer(buffer[:length]))
            self._under_way.append(_Arrival(rank, tag, device, length, buffer, request))
            self._bytes += length

    def _receive_the_rest(self, message: _Arrival) -> None:
        """The pieces after the first."""
        count = message.length
        while count == self._chunk:
            status = MPI.Status()
            piece = self._comm.Mprobe(message.rank, MPI.ANY_TAG, status)
            count, filled = status.Get_count(MPI.BYTE), message.length
            message.length += count
            if message.length > message.buffer.size:
                grown = self._inbox.take(max(message.length, 2 * filled), message.device)
                grown[:filled] = message.buffer[:filled]
                message.buffer = grown  # the inbox gives this longer buffer to the next long message
            piece.Recv(mpi_buffer(message.buffer[filled : message.length]))
