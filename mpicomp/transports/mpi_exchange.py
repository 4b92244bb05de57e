"""The exchange of blocks over MPI: only messages from one rank to another, none of them waited for in turn.

Blocks are served in contiguous shares.  The messages of two ranks to each other are told apart by their order
alone.  Rank q sends rank r, for each block that r serves, from the last to the first, that block of the
message of each worker hosted on q; and then the broadcast of each block that q serves, in the same order.
Rank r takes them in this order.

Broadcasts.  Where each rank serves a block, it sends its broadcast to every other rank directly.  All links
are equally busy then, and there is one step.  Where ranks are far more than blocks, those that serve none
would have idle links.  So the broadcast of a block spreads in a ``tree``, and a rank sends on what it gets.
It takes the blocks that are one step from their owners first, then those that are two steps from them, and
so on, each time from the last to the first.  So it sends them on in the order in which the next rank takes
them, and none waits for a block that waits for it.

Order.  A long message is announced, and sent when the receiver asks for it.  If all ranks asked one rank
first, its link would be full and the others empty.  So rank r takes messages from ranks r - 1, r - 2, .. in
turn, a few at a time, while these send to it: then the pairs of ranks are busy, each with the other.  What
comes before its turn is kept, for sums are taken in worker order.  Where a rank hosts many workers, so much
would be kept that messages are taken in worker order instead.

Unasked.  Between hosts, over TCP, the request for a message waits in the same stream behind what is being
sent there.  Two ranks that send to each other at the same time then do so one after the other, at half of
what the link carries in both directions.  So messages to other hosts are cut into pieces that Open MPI's TCP
sends unasked.  The receiver's MPI keeps them until they are wanted.  So only so much is sent unasked that a
rank gets no more than one worker's whole message and ``AHEAD`` bytes, and the broadcasts, which together are
a vector too.  What is left is announced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from mpi4py import MPI

from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MpicompError
from mpicomp.transports import pieces
from mpicomp.transports.base import AHEAD
from mpicomp.transports.exchange import Exchange, Received, as_error, as_text, sound
from mpicomp.transports.neighbours import sent_whole
from mpicomp.transports.point_to_point import DATA, ERROR, STOP, PointToPoint
from mpicomp.transports.tree import children, depth, parent, pays

# Announced messages under way to a rank: one alone leaves a link idle between two; as many as ranks jam it.
AT_A_TIME = 3
UNASKED = 60_000  # bytes of a piece that is sent unasked: Open MPI does so up to 64 KiB, with its header


class MpiExchange(Exchange):
    """The blocks that the ranks of ``mpi`` serve."""

    def __init__(self, mpi: PointToPoint, blocks: int) -> None:
        self._mpi = mpi
        self.owners = [b * mpi.ranks // blocks for b in range(blocks)]
        own = [b for b, owner in enumerate(self.owners) if owner == mpi.rank]
        self.served = range(own[-1], own[0] - 1, -1) if own else range(0)
        self.hosted, shares = mpi.hosted, mpi.shares
        self._silent = [r for r in range(mpi.ranks) if not shares[r] and r not in self.owners]
        # A silent rank sends its stop alone, which would be taken for a broadcast that it passes on.
        self._in_trees = not self._silent and pays(self.owners, mpi.ranks)
        self._whole = sent_whole(mpi.messages)  # ranks
        self._kept: list[Callable[[], None]] = []  # each gives back the memory of a broadcast
        self._may_speak = mpi.rank in self._silent

    def begin(self) -> None:
        while self._kept:  # the broadcasts of the round before
            self._kept.pop()()
        self._sent: dict[int, Mapping[int, Bytes | MpicompError]] = {}
        self._published: dict[int, tuple[Bytes | MpicompError, int]] = {}
        self._sent_to = [0] * self._mpi.ranks  # bytes of this round's messages

    def post(self, block: int, messages: Mapping[int, Bytes | MpicompError]) -> None:
        self._sent[block] = messages
        if self.owners[block] == self._mpi.rank:
            return
        owner = self.owners[block]
        for message in messages.values():
            sent, tag = self._tagged(message)
            self._sent_to[owner] += len(sent)
            share = (AHEAD + len(self.owners) * len(sent)) // (self._mpi.ranks - 1)
            self._send(sent, tag, [owner], unasked=self._sent_to[owner] <= share)

    def _tagged(self, message: Bytes | MpicompError) -> tuple[Bytes, int]:
        """What is sent of ``message``, and its tag."""
        if isinstance(message, MpicompError):
            return as_text(message), ERROR
        return message, STOP if self._mpi.stop else DATA

    def _send(self, sent: Bytes, tag: int, dests: Sequence[int], unasked: bool = True) -> None:
        """Begin to send to each rank of ``dests``; to those on other hosts unasked, or announced."""
        unasked = unasked and len(sent) <= pieces.MOST * UNASKED
        for dest in dests:
            self._mpi.sent[0] += len(sent)
            longest = UNASKED if unasked and dest not in self._whole else None
            self._mpi.post(self._mpi.messages, sent, tag, dest, longest)

    @contextmanager
    def receive(self, block: int, senders: Sequence[int]) -> Iterator[Received]:
        mpi = self._mpi
        others = [i for i in senders if i not in mpi.hosted]
        if self._may_keep(len(others), block):
            others.sort(key=lambda i: (self._turn(mpi.rank_of[i]), i))
        arrivals = mpi.arrivals(mpi.messages, [mpi.rank_of[i] for i in others], AT_A_TIME)
        here: dict[int, tuple[Bytes | MpicompError, Callable[[], None]]] = {}

        def messages() -> Received:
            for i in senders:
                if i in mpi.hosted:
                    yield i, sound(self._sent[block][i])
                    continue
                while i not in here:
                    message, tag = mpi.take(mpi.messages, arrivals)
                    mpi.stop |= tag == STOP
                    kept = as_error(message) if tag == ERROR else message
                    here[others.pop(0)] = kept, arrivals.keep()
                yield i, sound(here[i][0])
                here.pop(i)[1]()

        try:
            yield messages()
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
        if block == 0:
            self._hear_silent_ranks()
        sent, tag = self._tagged(message)
        self._published[block] = message, tag
        self._send(sent, tag, self.receivers(block))

    def receivers(self, block: int) -> list[int]:
        rank, owner, ranks = self._mpi.rank, self.owners[block], self._mpi.ranks
        if self._in_trees:
            return children(rank, owner, ranks)
        return [(rank + step) % ranks for step in range(1, ranks)] if rank == owner else []

    def collect(self) -> tuple[list[Bytes], bool]:
        mpi = self._mpi
        self._speak()
        others = [b for b in reversed(range(len(self.owners))) if b not in self.served]
        if self._in_trees:
            others.sort(key=lambda b: depth(mpi.rank, self.owners[b], mpi.ranks))
            sources = [parent(mpi.rank, self.owners[b], mpi.ranks) for b in others]
        else:
            others.sort(key=lambda b: self._turn(self.owners[b]))
            sources = [self.owners[b] for b in others]
        arrivals = mpi.arrivals(mpi.messages, sources, AT_A_TIME)
        for b in others:
            message, tag = mpi.take(mpi.messages, arrivals)
            self._published[b] = as_error(message) if tag == ERROR else message, tag
            self._kept.append(arrivals.keep())
            self._send(message, tag, self.receivers(b))
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
