"""The exchange of blocks over MPI: only messages from one rank to another, none of them waited for in turn.

Blocks are served in contiguous shares.  The messages of two ranks to each other are told apart by their order
alone.  Rank q sends rank r, for each block that r serves, from the last to the first, that block of the
message of each worker hosted on q; and then the broadcast of each block that q serves, from the last to the
first.  Rank r takes them in this order.  A broadcast goes to
every other rank directly, so a rank sends each byte of its own blocks once to each rank, which is the least
that there is to send.

Order.  If all ranks let one rank's messages in first, its link is full and the others are empty.  So rank r
takes messages from ranks r - 1, r - 2, .. in turn, a few at a time, while these send to it: then the pairs of
ranks are busy, each with the other.  What comes before its turn is kept, for sums are taken in worker order.
Where a rank hosts many workers, so much would be kept that messages are taken in worker order instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mpi4py import MPI

from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MpicompError
from mpicomp.transports.arrivals import AHEAD
from mpicomp.transports.exchange import Exchange, Received, as_error, as_text, sound

if TYPE_CHECKING:
    from mpicomp.transports.mpi import Mpi

# Messages under way to a rank: one alone leaves a link idle between two; as many as ranks jam it.
AT_A_TIME = 3
DATA, STOP, ERROR = 1, 2, 3  # tags of a message, and statuses of a broadcast


class MpiExchange(Exchange):
    """The blocks that the ranks of ``mpi`` serve."""

    def __init__(self, mpi: Mpi, blocks: int) -> None:
        self._mpi = mpi
        self.owners = [b * mpi.ranks // blocks for b in range(blocks)]
        own = [b for b, owner in enumerate(self.owners) if owner == mpi.rank]
        self.served = range(own[-1], own[0] - 1, -1) if own else range(0)
        self.hosted, shares = mpi.hosted, mpi.shares
        self._silent = [r for r in range(mpi.ranks) if not shares[r] and r not in self.owners]
        self._kept: list[Callable[[], None]] = []  # each gives back the memory of a broadcast
        self._may_speak = mpi.rank in self._silent

    def begin(self) -> None:
        while self._kept:  # the broadcasts of the round before
            self._kept.pop()()
        self._sent: dict[int, Mapping[int, Bytes | MpicompError]] = {}
        self._published: dict[int, tuple[Bytes | MpicompError, int]] = {}

    def post(self, block: int, messages: Mapping[int, Bytes | MpicompError]) -> None:
        self._sent[block] = messages
        if self.owners[block] == self._mpi.rank:
            return
        for message in messages.values():
            self._send(message, self.owners[block])

    def _send(self, message: Bytes | MpicompError, *dests: int) -> int:
        """Begin to send ``message`` to each rank of ``dests``; returns its tag."""
        mpi = self._mpi
        failed = isinstance(message, MpicompError)
        tag = ERROR if failed else STOP if mpi.stop else DATA
        sent = as_text(message) if isinstance(message, MpicompError) else message
        for dest in dests:
            mpi.sent[0] += len(sent)
            mpi.post(mpi.messages, sent, tag, dest)
        return tag

    def receive(self, block: int, senders: Sequence[int]) -> Received:
        mpi = self._mpi
        others = [i for i in senders if i not in mpi.hosted]
        if self._may_keep(len(others), block):
            others.sort(key=lambda i: (self._turn(mpi.rank_of[i]), i))
        arrivals = mpi.arrivals(mpi.messages, [mpi.rank_of[i] for i in others], AT_A_TIME)
        here: dict[int, tuple[Bytes | MpicompError, Callable[[], None]]] = {}
        try:
            for i in senders:
                if i in mpi.hosted:
                    yield i, sound(self._sent[block][i])
                    continue
                while i not in here:
                    message, tag = mpi.take(mpi.messages, arrivals)
                    mpi.stop |= tag == STOP
                    kept = as_error(message) if tag == ERROR else message
                    here[others.pop(0)] = kept, arrivals.keep()
                block_of_i, let_go = here.pop(i)
                yield i, sound(block_of_i)
                let_go()
        finally:
            while arrivals:
                mpi.take(mpi.messages, arrivals)
            arrivals.let_go()
            for _, let_go in here.values():
                let_go()

    def _may_keep(self, messages: int, block: int) -> bool:
        """Whether so many messages of the block, if they are like our own, are no more than a few of ours."""
        own = next((i for i, m in self._sent[block].items() if not isinstance(m, MpicompError)), None)
        if own is None:
            return False
        of_blocks = {
            b: len(m) for b, sent in self._sent.items() if not isinstance(m := sent[own], MpicompError)
        }
        return messages * of_blocks[block] <= AHEAD + 2 * sum(of_blocks.values())

    def _turn(self, rank: int) -> int:
        """When a rank's messages are taken: 1 for the rank before this one."""
        return (self._mpi.rank - rank) % self._mpi.ranks

    def publish(self, block: int, message: Bytes | MpicompError) -> None:
        mpi = self._mpi
        if block == 0:
            self._hear_silent_ranks()
        others = [(mpi.rank + step) % mpi.ranks for step in range(1, mpi.ranks)]
        self._published[block] = message, self._send(message, *others)

    def collect(self) -> tuple[list[Bytes], bool]:
        mpi = self._mpi
        self._speak()
        others = [b for b in range(len(self.owners)) if b not in self.served]
        others.sort(key=lambda b: (self._turn(self.owners[b]), -b))
        arrivals = mpi.arrivals(mpi.messages, [self.owners[b] for b in others], AT_A_TIME)
        for b in others:
            message, tag = mpi.take(mpi.messages, arrivals)
            self._published[b] = as_error(message) if tag == ERROR else message, tag
            self._kept.append(arrivals.keep())
        mpi.wait_for_sends(mpi.messages)
        stop = any(tag == STOP for _, tag in self._published.values())
        return [sound(self._published[b][0]) for b in range(len(self.owners))], stop

    def drop(self) -> None:
        self._mpi.wait_for_sends(self._mpi.messages)

    def _speak(self) -> None:
        """A rank without workers and blocks tells of its stop in an empty message."""
        if self._may_speak and self._mpi.stop:
            self._mpi.messages.Isend([b"", MPI.BYTE], dest=0, tag=STOP).Free()
            self._may_speak = False

    def _hear_silent_ranks(self) -> None:
        for rank in self._silent:
            if self._mpi.messages.Iprobe(rank, STOP):
                self._mpi.messages.Recv([bytearray(), MPI.BYTE], rank, STOP)
                self._mpi.stop = True
