"""Channels of a gloo group, and messages received there in a given order of ranks.

A message is a header of 16 bytes, its length and its status, and then its bytes: gloo's receiver has to know
how many come.  Headers and bytes have a tag each, so headers are asked for ahead.  When a rank has a header,
it asks for the bytes.  It does so for a few messages ahead of their turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpicomp.base.bits import Bytes
from mpicomp.torch.gloo import Gloo, Gone, UnderWay
from mpicomp.transports.base import AHEAD
from mpicomp.transports.coming import MOST, Coming
from mpicomp.transports.inbox import Inbox

_ASKED = 3  # messages whose bytes are under way at a time


@dataclass(frozen=True)
class Channel:
    """Messages over ``gloo`` with the tags ``tag`` and ``tag`` + 1, apart from those of other channels."""

    gloo: Gloo
    tag: int

    def send(self, message: Bytes, status: int, dest: int) -> list[UnderWay]:
        """Start to send a message to the rank ``dest``."""
        head = self.gloo.send(header(len(message), status), dest, self.tag)
        return head + self.gloo.send(message, dest, self.tag + 1)

    def receive(self, source: int) -> tuple[Bytes, int]:
        """Wait for a message of the rank ``source``; return it and its status."""
        self.gloo.wait(self.gloo.receive(head := header(0, 0), source, self.tag))
        length, status = head.view(np.int64).tolist()
        message = np.empty(length, np.uint8)
        self.gloo.wait(self.gloo.receive(message, source, self.tag + 1))
        return message, status


def header(length: int, status: int) -> Bytes:
    """The header of a message, 16 bytes."""
    return np.array([length, status], np.int64).view(np.uint8)


@dataclass
class _Arrival:
    """A message from ``rank``: its header is asked for, and then its bytes."""

    rank: int
    head: Bytes
    under_way: list[UnderWay]
    buffer: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    device: Any = None
    length: int = 0
    status: int = 0


class GroupArrivals(Coming):
    """The messages that ``ranks`` send on ``channel``, received in the order of ``ranks``.

    most  the number of messages under way at a time
    """

    def __init__(self, channel: Channel, ranks: Iterable[int], inbox: Inbox, most: int = MOST) -> None:
        super().__init__(inbox)
        self._channel, self._gloo, self._most = channel, channel.gloo, most
        self._awaited = deque(ranks)
        self._announced: deque[_Arrival] = deque()  # whose headers are asked for
        self._under_way: deque[_Arrival] = deque()  # whose bytes are asked for
        self._bytes = 0  # under way

    def __len__(self) -> int:
        return len(self._awaited) + len(self._announced) + len(self._under_way)

    def take(self) -> tuple[Bytes, int]:
        self.let_go()
        try:
            self._ask()
            self._gloo.wait(self._under_way[0].under_way)
        except Gone as gone:  # the others' messages are still to be taken, so that they do not wait
            self._abandon({gone.rank})
            raise
        except BaseException:
            self._abandon(range(self._gloo.ranks))
            raise
        message = self._taken = self._under_way.popleft()
        self._bytes -= message.length
        return message.buffer[: message.length], message.status

    def _ask(self) -> None:
        """Ask for the bytes of the next messages, up to the limits, and for headers of those after them."""
        self._ask_for_headers()
        while self._announced and len(self._under_way) < min(_ASKED, self._most) and self._bytes < AHEAD:
            message = self._announced[0]
            self._gloo.wait(message.under_way)
            self._under_way.append(self._announced.popleft())
            message.length, message.status = message.head.view(np.int64).tolist()
            message.buffer = self._inbox.take(message.length, None)
            self._bytes += message.length
            into = message.buffer[: message.length]
            message.under_way = self._gloo.receive(into, message.rank, self._channel.tag + 1)
            self._ask_for_headers()

    def _ask_for_headers(self) -> None:
        while self._awaited and len(self._announced) + len(self._under_way) < self._most:
            rank = self._awaited.popleft()
            asked = self._gloo.receive(head := header(0, 0), rank, self._channel.tag)
            self._announced.append(_Arrival(rank, head, asked))

    def _abandon(self, ranks: Container[int | None]) -> None:
        """Expect no more from ``ranks``.  Keep the memory of what is under way: gloo may write there."""
        for message in [*self._announced, *self._under_way]:
            if message.rank in ranks:
                self._inbox.abandon(message.head)
                self._inbox.abandon(message.buffer)
        self._awaited = deque(rank for rank in self._awaited if rank not in ranks)
        self._announced = deque(m for m in self._announced if m.rank not in ranks)
        self._under_way = deque(m for m in self._under_way if m.rank not in ranks)
        self._bytes = sum(m.length for m in self._under_way)
