"""A transport over a process group of torch.distributed, which torchrun, accelerate or srun has started.

Theory of operation (see also ``ranks``).  Bytes travel over gloo groups of mpicomp's own, made beside the
given one: one for each transport, and one on which all transports of the same ranks meet (see ``meeting``).
A broadcast is a header from rank 0 to each rank, and then gloo's broadcast of the message.

The given group may have any backend that has a timeout.  Beside an nccl group, too, messages are in the
host's memory and travel over gloo.  Device buffers over NCCL are not implemented.

Failure.  gloo fails when the other process has ended, or has been silent for longer than the timeout.  Such a
failure is an ``MpicompError`` on the rank that meets it.  Then this rank ends, too, or raises it in every
later call, so that no rank waits for ever.  If rank 0 meets it, it tells the others which rank it was.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MpicompError
from mpicomp.torch.gloo import Gloo, Gone, UnderWay, timeout_of
from mpicomp.torch.group_arrivals import Channel, GroupArrivals, header
from mpicomp.torch.group_exchange import GroupExchange
from mpicomp.torch.group_meeting import meeting_of
from mpicomp.transports.base import shares_of
from mpicomp.transports.coming import MOST, Coming
from mpicomp.transports.exchange import Exchange
from mpicomp.transports.inbox import Inbox
from mpicomp.transports.ranks import ERROR, NOTHING, Ranks

_MESSAGES, _MEASUREMENTS, _HEADERS, _ERRORS = 0, 2, 4, 5  # tags; a channel has two of them


class ProcessGroup(Ranks):
    """n workers in contiguous shares over the ranks of ``group``.

    dedicated      rank 0 is the server only, and hosts no worker
    stall_timeout  seconds that rank 0 waits for a rank before it names it in an error; None: the timeout of
                   ``group``
    """

    def __init__(
        self, n: int, group: dist.ProcessGroup, dedicated: bool = False, stall_timeout: float | None = None
    ) -> None:
        super().__init__()
        self._timeout = timeout_of(group) if stall_timeout is None else timedelta(seconds=stall_timeout)
        self._inbox = Inbox()
        self._under_way: list[UnderWay] = []  # sends; each keeps its message's memory alive
        with self._named():
            self._meeting = meeting_of(group, self._timeout)
            self._gloo = Gloo(group, self._timeout)
        self.names = self._meeting.names
        self.messages = Channel(self._gloo, _MESSAGES)
        self._measurements = Channel(self._gloo, _MEASUREMENTS)
        self._place(group.rank(), shares_of(n, group.size(), dedicated))
        self.speakers = [rank for rank in range(1, self.ranks) if not self.shares[rank]]

    @contextmanager
    def _named(self) -> Iterator[None]:
        """For a rank that is gone, raise ``MpicompError``, which names the activity of the ranks."""
        try:
            yield
        except Gone as gone:
            raise MpicompError(f"{self.activity}: {gone}") from None

    @contextmanager
    def _waiting(self, channel: Any) -> Iterator[None]:
        with self._named(), super()._waiting(channel):
            yield

    def post(self, channel: Channel, message: Bytes, status: int, dest: int = 0) -> None:
        self._under_way += channel.send(message, status, dest)

    def wait_for_sends(self, channel: Channel) -> None:
        sent, self._under_way = self._under_way, []
        with self._waiting(channel):
            self._gloo.wait(sent)

    def arrivals(self, channel: Channel, ranks: Iterable[int], most: int = MOST) -> Coming:
        return GroupArrivals(channel, ranks, self._inbox, most)

    def _broadcast(self, channel: Channel, message: Bytes | None, status: int) -> tuple[Bytes, int]:
        with self._waiting(channel):
            if message is None:
                return self._receive_broadcast()
            if status == ERROR:  # which may be that a rank is gone
                self._send_to_all(message, status)
            else:
                for sent in self._send_header(len(message), status):
                    self._gloo.wait(sent)
                self._gloo.broadcast(message)
        return message, status

    def _receive_broadcast(self) -> tuple[Bytes, int]:
        self._gloo.wait(self._gloo.receive(head := header(0, 0), 0, _HEADERS))
        length, status = head.view(np.int64).tolist()
        message = self._inbox.renew(length, None)
        if status == ERROR:
            self._gloo.wait(self._gloo.receive(message, 0, _ERRORS))
        else:
            self._gloo.broadcast(message)
        return message, status

    def _send_header(self, length: int, status: int) -> list[list[UnderWay]]:
        return [self._gloo.send(header(length, status), rank, _HEADERS) for rank in range(1, self.ranks)]

    def _send_to_all(self, message: Bytes, status: int) -> None:
        """Send ``message`` to all ranks that can still be reached."""
        sent = self._send_header(len(message), status)
        sent += [self._gloo.send(message, rank, _ERRORS) for rank in range(1, self.ranks)]
        self._wait_for_the_reached(sent)

    def _hand_out_nothing(self, workers: Sequence[int]) -> None:
        sent = [[one] for one in self._under_way]
        self._under_way = []
        sent += [self.messages.send(NOTHING, ERROR, self.rank_of[i]) for i in workers]
        self._wait_for_the_reached(sent)

    def _wait_for_the_reached(self, sent: list[list[UnderWay]]) -> None:
        """Wait until all of ``sent`` is sent, but for what goes to ranks that are gone."""
        for one in sent:
            with suppress(Gone):
                self._gloo.wait(one)

    def exchange(self, blocks: int) -> Exchange:
        return GroupExchange(self, blocks)

    def sum_all(self, vector: NDArray[np.floating]) -> None:
        """Replace ``vector`` by the sum over the ranks, by gloo's allreduce; see ``Transport``."""
        self.sent[0] += vector.nbytes
        with self._waiting(self.messages):
            self._gloo.sum(vector)

    def tell_all(self, number: int) -> list[int]:
        self._meeting.gloo.limit(self._timeout)
        with self._waiting(self._measurements):
            return self._meeting.tell_all(number)

    @property
    def is_over(self) -> bool:
        gone = self._gloo.lost or self._meeting.gloo.lost
        return bool(gone) or hasattr(sys, "last_value")  # the uncaught exception that ends this process

    def close(self) -> None:
        self._gloo.close()

    def host(self) -> str:
        return f"{socket.gethostname()}, gloo of torch {torch.__version__}"
