"""The common part of transports between processes: contiguous shares of workers, rank 0 the server.

Theory of operation.  Uplink: each worker's message is sent to the server without blocking, with a status,
DATA or STOP.  The server takes the messages in worker order.  Downlink: a broadcast, with a status too.
Before it, in the rounds of some methods, a message to each worker, which its rank takes in worker order.
Measurements and all else that is no part of a method travel on a channel of their own.

Failure.  A rank whose worker fails sends the error in the message's place, with the status ERROR.  The server
hears of it in its turn, receives what else is under way, and broadcasts the error, which then is raised on
all ranks.  If it cannot make the message to a worker, it sends an empty one of the status ERROR in place of
each that is left, and then broadcasts the error.
"""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from mpicomp.base.bits import Bytes
from mpicomp.base.clock import Clock
from mpicomp.base.errors import MpicompError, raise_if
from mpicomp.transports.base import AHEAD, Make, T, Take, Transport
from mpicomp.transports.coming import MOST, Coming
from mpicomp.transports.exchange import as_error, as_text

DATA, STOP, ERROR = 1, 2, 3  # statuses of a message and of a broadcast
NOTHING = np.empty(0, np.uint8)  # a message without content


class Ranks(Transport):
    """n workers in contiguous shares over several processes.

    messages  the channel on which a method's messages travel
    shares    the workers of each rank
    rank_of   the rank of each worker
    speakers  ranks without workers that end each ``gather`` with an empty message, to tell whether they were
              asked to stop
    """

    messages: Any
    _measurements: Any  # the channel of measurements and of all else that is no part of a method
    shares: Sequence[range]
    rank_of: list[int]
    speakers: Sequence[int] = ()

    def __init__(self) -> None:
        self.clock = Clock()
        self.sent = [0, 0]

    def _place(self, rank: int, shares: Sequence[range]) -> None:
        """Set the fields that follow from this rank's number and ``shares``, the workers of each rank."""
        self.n, self.rank, self.ranks = shares[-1].stop, rank, len(shares)
        self.hosted, self.is_server = shares[rank], rank == 0
        self.shares = shares
        self.rank_of = [r for r, share in enumerate(shares) for _ in share]

    @abstractmethod
    def post(self, channel: Any, message: Bytes, status: int, dest: int = 0) -> None:
        """Start to send ``message`` to the rank ``dest``; ``wait_for_sends`` ends it."""

    @abstractmethod
    def wait_for_sends(self, channel: Any) -> None:
        """Wait until all posted messages are sent, so that their memory may be used again."""

    @abstractmethod
    def arrivals(self, channel: Any, ranks: Iterable[int], most: int = MOST) -> Coming:
        """Receive the messages of ``ranks``, in that order, at most ``most`` of them under way at a time."""

    @abstractmethod
    def _broadcast(self, channel: Any, message: Bytes | None, status: int) -> tuple[Bytes, int]:
        """Broadcast the server's ``message`` and ``status``; None and any status on the other ranks."""

    def take(self, channel: Any, arrivals: Coming) -> tuple[Bytes, int]:
        """Wait for the next message of ``arrivals``; return it and its status."""
        with self._waiting(channel):
            return arrivals.take()

    def _waiting(self, channel: Any) -> AbstractContextManager[None]:
        """Time the wait if ``channel`` carries messages; waiting for measurements is not part of a run."""
        return self.clock.phase("wait") if channel is self.messages else nullcontext()

    def _unobserved(self) -> AbstractContextManager[None]:
        return self.counter.paused() if self.counter else nullcontext()

    def gather(self, senders: Sequence[int], take: Take) -> AbstractContextManager[Take]:
        return self._gathered(self.messages, senders, take)

    @contextmanager
    def observe(self, take: Take) -> Iterator[Take]:
        with self._unobserved(), self._gathered(self._measurements, range(self.n), take) as send:
            yield send

    def _gathered(self, channel: Any, senders: Sequence[int], take: Take) -> AbstractContextManager[Take]:
        return self._receiving(channel, senders, take) if self.is_server else self._sending(channel, senders)

    @contextmanager
    def _sending(self, channel: Any, senders: Sequence[int]) -> Iterator[Take]:
        """Send the messages of the hosted workers among ``senders`` to the server."""
        left = sum(i in self.hosted for i in senders)

        def send(i: int, message: Bytes) -> None:
            nonlocal left
            self._send(channel, message, STOP if self.stop else DATA)
            left -= 1

        try:
            yield send
        except MpicompError as error:
            text = as_text(error)
            for _ in range(left):  # the server counts on a message from every sender
                self._send(channel, text, ERROR)
        if self.rank in self.speakers:
            self._send(channel, NOTHING, STOP if self.stop else DATA)
        self.wait_for_sends(channel)

    @contextmanager
    def _receiving(self, channel: Any, senders: Sequence[int], take: Take) -> Iterator[Take]:
        """Take all messages in worker order.  After a failure, still receive the other ranks' messages."""
        others = [i for i in senders if i not in self.hosted]
        arrivals = self.arrivals(channel, [*(self.rank_of[i] for i in others), *self.speakers])
        try:
            yield take
            for i in others:
                message, status = self.take(channel, arrivals)
                if status == ERROR:
                    raise as_error(message)
                self.stop |= status == STOP
                take(i, message)
            for _ in self.speakers:
                self.stop |= self.take(channel, arrivals)[1] == STOP
        finally:
            while arrivals:
                self.take(channel, arrivals)
            arrivals.let_go()

    def _send(self, channel: Any, message: Bytes, status: int) -> None:
        self.sent[0 if channel is self.messages else 1] += len(message)
        self.post(channel, message, status)

    def broadcast(self, message: Bytes | None) -> tuple[Bytes, bool]:
        self._hear_stops()
        message, status = self._broadcast(self.messages, message, STOP if self.stop else DATA)
        if self.is_server:
            self.sent[0] += len(message) * (self.ranks - 1)
        if status == ERROR:
            raise as_error(message)
        return message, status == STOP

    def scatter(self, make: Make, take: Take) -> None:
        if self.is_server:
            self._hand_out(make, take)
            return
        arrivals = self.arrivals(self.messages, [0] * len(self.hosted))
        try:
            for i in self.hosted:
                message, status = self.take(self.messages, arrivals)
                if status != ERROR:  # which the broadcast raises
                    take(i, message)
        finally:
            arrivals.let_go()

    def _hand_out(self, make: Make, take: Take) -> None:
        """The server's part of ``scatter``."""
        done, under_way = 0, 0  # workers whose message is made, bytes not known to be sent
        try:
            for i in range(self.n):
                message = make(i)
                done += 1
                if i in self.hosted:
                    take(i, message)
                    continue
                self.sent[0] += len(message)
                self.post(self.messages, message, DATA, self.rank_of[i])
                under_way += len(message)
                if under_way >= AHEAD:
                    self.wait_for_sends(self.messages)
                    under_way = 0
            self.wait_for_sends(self.messages)
        except MpicompError:
            self._hand_out_nothing([i for i in range(done, self.n) if i not in self.hosted])
            raise

    def _hand_out_nothing(self, workers: Sequence[int]) -> None:
        """Send an empty message of the status ERROR to each of ``workers``: each counts on a message."""
        for i in workers:
            self.post(self.messages, NOTHING, ERROR, self.rank_of[i])
        self.wait_for_sends(self.messages)

    def _hear_stops(self) -> None:
        """Let the server hear of ranks without workers that were asked to stop."""

    def fail(self, error: MpicompError) -> None:
        """On the server, while the others wait in ``broadcast``: raise ``error`` on them too."""
        self._broadcast(self.messages, as_text(error), ERROR)

    def broadcast_control(self, message: bytes | None) -> bytes:
        buffer = None if message is None else np.frombuffer(message, dtype=np.uint8).copy()
        return self._broadcast(self._measurements, buffer, DATA)[0].tobytes()

    def raise_on_all(self, action: Callable[[], T]) -> T:
        try:
            result, error = action(), None
        except MpicompError as raised:
            result, error = None, raised
        errors: Any = self.collect(error)
        self.ask_server(lambda: raise_if(next((e for e in errors if e is not None), None)))
        return result  # type: ignore[return-value]

    def collect(self, value: object) -> list[object] | None:
        channel = self._measurements
        with self._unobserved():
            if not self.is_server:
                self.post(channel, np.frombuffer(pickle.dumps(value), dtype=np.uint8), DATA)
                self.wait_for_sends(channel)
                return None
            arrivals = self.arrivals(channel, range(1, self.ranks))
            others = [pickle.loads(self.take(channel, arrivals)[0].tobytes()) for _ in range(len(arrivals))]
            arrivals.let_go()
            return [value, *others]
