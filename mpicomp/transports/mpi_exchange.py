"""Sharded averaging over MPI: non-blocking point-to-point messages, received in any order of ranks.

Blocks are served in contiguous shares.  Two ranks tell their messages to each other apart by order alone.
Rank q sends rank r, for each block that r serves, from the last to the first, that block of the message of
each worker hosted on q.  Then q sends the broadcast of each block that q serves, in the same order.
Rank r takes them in this order.

Broadcasts.  If every rank serves a block, each rank sends its broadcast to every other rank directly.  All
links are then equally busy, and there is one step.  If there are far more ranks than blocks, the ranks that
serve no block would have idle links.  So the broadcast of a block spreads in a ``tree``: a rank passes it on
when it gets it.  It takes the blocks that are one step from their owners first, then those two steps away,
and so on, each time from the last block to the first.  This is the order in which the next rank takes them,
so no two ranks wait for each other.

Order.  A message above MPI's eager limit is announced, and sent when the receiver asks for it.  If all ranks
asked one rank first, its link would be full and the others empty.  So rank r takes messages from ranks r - 1,
r - 2, .. in turn, a few at a time, while these send to it: each pair of ranks is then busy with each other.
Sums are taken in worker order, so a message that comes before its turn is kept.  If a rank hosts many
workers, this would keep too much, and messages are taken in worker order instead.

Eager sends.  Between hosts, over TCP, the request for a message waits in the same stream behind data under
way.  Two ranks that send to each other at the same time would then do so one after the other, at half of
the link's capacity in both directions.  So messages to other hosts are cut into pieces that Open MPI's TCP
sends eagerly, without a request ("unasked" below).  The receiver's MPI stores them until they are received.
To bound this memory, a rank is sent unasked no more than one worker's whole message, ``AHEAD`` bytes, and the
broadcasts, which together are one vector.  All other messages are announced.
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
    """The exchange of ``blocks`` blocks between the ranks of ``mpi``."""

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
        """The bytes to send for ``message``, which may be an error, and their tag."""
        if isinstance(message, MpicompError):
            return as_text(message), ERROR
        return message, STOP if self._mpi.stop else DATA

    def _send(self, sent: Bytes, tag: int, dests: Sequence[int], unasked: bool = True) -> None:
        """Start to send to each rank of ``dests``.  ``unasked``: to other hosts in eager pieces."""
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
        """On a rank without workers and blocks: tell rank 0 in an empty message that it was asked to stop."""
        if self._may_speak and self._mpi.stop:
            self._mpi.messages.Isend([b"", MPI.BYTE], dest=0, tag=STOP).Free()
            self._may_speak = False

    def _hear_silent_ranks(self) -> None:
        for rank in self._silent:
            if self._mpi.messages.Iprobe(rank, STOP):
                self._mpi.messages.Recv([bytearray(), MPI.BYTE], rank, STOP)
                self._mpi.stop = True
