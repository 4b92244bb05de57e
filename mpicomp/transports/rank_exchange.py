"""Sharded averaging between processes: messages without blocking, from each rank to each, in a fixed order.

Blocks are served in contiguous shares.  Messages carry no number: their order alone says which is which.
Rank q sends rank r, for each block that r serves, from the last to the first, that block of the message of
each worker hosted on q.  Then q sends the broadcast of each block that q serves, in the same order.
Rank r takes them in this order.  Each rank sends its broadcast to every other rank directly.

Order.  If all ranks took messages from one rank first, its link would be full and the others empty.  So rank
r takes messages from ranks r - 1, r - 2, .. in turn, a few at a time, while these send to it: each pair of
ranks is then busy with each other.  Sums are taken in worker order, so a message that comes before its turn
is kept.  If a rank hosts many workers, this would keep too much, and messages are taken in worker order
instead.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MpicompError
from mpicomp.transports.base import AHEAD
from mpicomp.transports.exchange import Exchange, Received, as_error, as_text, sound
from mpicomp.transports.ranks import DATA, ERROR, STOP, Ranks

# Announced messages under way to a rank: one alone leaves a link idle between two; as many as ranks jam it.
AT_A_TIME = 3


class RankExchange(Exchange):
    """The exchange of ``blocks`` blocks between the ranks of ``transport``."""

    def __init__(self, transport: Ranks, blocks: int) -> None:
        self._transport = t = transport
        self.owners = [b * t.ranks // blocks for b in range(blocks)]
        own = [b for b, owner in enumerate(self.owners) if owner == t.rank]
        self.served = range(own[-1], own[0] - 1, -1) if own else range(0)
        self.hosted = t.hosted
        # Ranks without workers and blocks; no message of theirs can say that they were asked to stop.
        self._mute = [r for r in range(t.ranks) if not t.shares[r] and r not in self.owners]
        self._kept: list[Callable[[], None]] = []  # each gives back the memory of a broadcast

    def begin(self) -> None:
        while self._kept:  # the broadcasts of the round before
            self._kept.pop()()
        self._sent: dict[int, Mapping[int, Bytes | MpicompError]] = {}
        self._published: dict[int, tuple[Bytes | MpicompError, int]] = {}

    def post(self, block: int, messages: Mapping[int, Bytes | MpicompError]) -> None:
        self._sent[block] = messages
        if (owner := self.owners[block]) != self._transport.rank:
            for message in messages.values():
                self._send(*self._with_status(message), owner, up=True)

    def _with_status(self, message: Bytes | MpicompError) -> tuple[Bytes, int]:
        """The bytes to send for ``message``, which may be an error, and their status."""
        if isinstance(message, MpicompError):
            return as_text(message), ERROR
        return message, STOP if self._transport.stop else DATA

    def _send(self, sent: Bytes, status: int, dest: int, up: bool) -> None:
        """Start to send a block to ``dest``: that of a worker's message if ``up``, else its broadcast."""
        self._transport.sent[0] += len(sent)
        self._transport.post(self._transport.messages, sent, status, dest)

    @contextmanager
    def receive(self, block: int, senders: Sequence[int]) -> Iterator[Received]:
        t = self._transport
        others = [i for i in senders if i not in t.hosted]
        if self._may_keep(len(others), block):
            others.sort(key=lambda i: (self._turn(t.rank_of[i]), i))
        arrivals = t.arrivals(t.messages, [t.rank_of[i] for i in others], AT_A_TIME)
        here: dict[int, tuple[Bytes | MpicompError, Callable[[], None]]] = {}

        def messages() -> Received:
            for i in senders:
                if i in t.hosted:
                    yield i, sound(self._sent[block][i])
                    continue
                while i not in here:
                    message, status = t.take(t.messages, arrivals)
                    t.stop |= status == STOP
                    kept = as_error(message) if status == ERROR else message
                    here[others.pop(0)] = kept, arrivals.keep()
                yield i, sound(here[i][0])
                here.pop(i)[1]()

        try:
            yield messages()
        finally:
            while arrivals:
                t.take(t.messages, arrivals)
            arrivals.let_go()
            for _, let_go in here.values():
                let_go()

    def _may_keep(self, messages: int, block: int) -> bool:
        """Whether ``messages`` messages of the block may be kept: with the length of our own worker's block,
        they must fit in twice our worker's whole message and ``AHEAD`` bytes.
        """
        own = next((i for i, m in self._sent[block].items() if not isinstance(m, MpicompError)), None)
        if own is None:
            return False
        of_blocks = {
            b: len(m) for b, sent in self._sent.items() if not isinstance(m := sent[own], MpicompError)
        }
        return messages * of_blocks[block] <= AHEAD + 2 * sum(of_blocks.values())

    def _turn(self, rank: int) -> int:
        """The turn in which a rank's messages are taken: 1 for the rank before this one."""
        return (self._transport.rank - rank) % self._transport.ranks

    def publish(self, block: int, message: Bytes | MpicompError) -> None:
        if block == 0:
            self._hear_mute_ranks()
        sent, status = self._with_status(message)
        self._published[block] = message, status
        self._pass_on(block, sent, status)

    def _pass_on(self, block: int, sent: Bytes, status: int) -> None:
        for dest in self.receivers(block):
            self._send(sent, status, dest, up=False)

    def receivers(self, block: int) -> list[int]:
        rank, ranks = self._transport.rank, self._transport.ranks
        return [(rank + step) % ranks for step in range(1, ranks)] if rank == self.owners[block] else []

    def _sources(self, blocks: list[int]) -> list[tuple[int, int]]:
        """(block, the rank from which this rank gets its broadcast), in the order in which they are taken."""
        return [(b, self.owners[b]) for b in sorted(blocks, key=lambda b: self._turn(self.owners[b]))]

    def collect(self) -> tuple[list[Bytes], bool]:
        t = self._transport
        self._speak()
        sources = self._sources([b for b in reversed(range(len(self.owners))) if b not in self.served])
        arrivals = t.arrivals(t.messages, [rank for _, rank in sources], AT_A_TIME)
        for b, _ in sources:
            message, status = t.take(t.messages, arrivals)
            self._published[b] = as_error(message) if status == ERROR else message, status
            self._kept.append(arrivals.keep())
            self._pass_on(b, message, status)
        t.wait_for_sends(t.messages)
        stop = any(status == STOP for _, status in self._published.values())
        return [sound(self._published[b][0]) for b in range(len(self.owners))], stop

    def drop(self) -> None:
        self._transport.wait_for_sends(self._transport.messages)

    @abstractmethod
    def _speak(self) -> None:
        """On a mute rank: let rank 0 know whether it was asked to stop."""

    @abstractmethod
    def _hear_mute_ranks(self) -> None:
        """On rank 0: hear whether mute ranks were asked to stop."""
