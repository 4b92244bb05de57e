"""Sharded averaging over MPI (see ``rank_exchange``): broadcasts in trees, and eager sends between hosts.

Broadcasts.  If every rank serves a block, each rank sends its broadcast to every other rank directly.  All
links are then equally busy, and there is one step.  If there are far more ranks than blocks, the ranks that
serve no block would have idle links.  So the broadcast of a block spreads in a ``tree``: a rank passes it on
when it gets it.  It takes the blocks that are one step from their owners first, then those two steps away,
and so on, each time from the last block to the first.  This is the order in which the next rank takes them,
so no two ranks wait for each other.

Eager sends.  A message above MPI's eager limit is announced, and sent when the receiver asks for it.  Between
hosts, over TCP, this request waits in the same stream behind data under way.  Two ranks that send to each
other at the same time would then do so one after the other, at half of the link's capacity in both
directions.  So messages to other hosts are cut into pieces that Open MPI's TCP sends eagerly, without a
request ("unasked" below).  The receiver's MPI stores them until they are received.  To bound this memory, a
rank is sent unasked no more than one worker's whole message, ``AHEAD`` bytes, and the broadcasts, which
together are one vector.  All other messages are announced.
"""

from __future__ import annotations

from mpi4py import MPI

from mpicomp.base.bits import Bytes
from mpicomp.transports import pieces
from mpicomp.transports.base import AHEAD
from mpicomp.transports.point_to_point import PointToPoint
from mpicomp.transports.rank_exchange import RankExchange
from mpicomp.transports.ranks import STOP
from mpicomp.transports.tree import children, depth, parent, pays

UNASKED = 60_000  # bytes of a piece that is sent unasked: Open MPI does so up to 64 KiB, with its header


class MpiExchange(RankExchange):
    """The exchange of ``blocks`` blocks between the ranks of ``mpi``."""

    def __init__(self, mpi: PointToPoint, blocks: int) -> None:
        super().__init__(mpi, blocks)
        self._mpi = mpi
        # A mute rank sends its stop alone, which would be taken for a broadcast that it passes on.
        self._in_trees = not self._mute and pays(self.owners, mpi.ranks)
        self._whole = sent_whole(mpi.messages)  # ranks
        self._may_speak = mpi.rank in self._mute

    def begin(self) -> None:
        super().begin()
        self._sent_to = [0] * self._mpi.ranks  # bytes of this round's messages

    def _send(self, sent: Bytes, status: int, dest: int, up: bool) -> None:
        unasked = len(sent) <= pieces.MOST * UNASKED
        if up:
            self._sent_to[dest] += len(sent)
            share = (AHEAD + len(self.owners) * len(sent)) // (self._mpi.ranks - 1)
            unasked = unasked and self._sent_to[dest] <= share
        self._mpi.sent[0] += len(sent)
        longest = UNASKED if unasked and dest not in self._whole else None
        self._mpi.post(self._mpi.messages, sent, status, dest, longest)

    def receivers(self, block: int) -> list[int]:
        if self._in_trees:
            return children(self._mpi.rank, self.owners[block], self._mpi.ranks)
        return super().receivers(block)

    def _sources(self, blocks: list[int]) -> list[tuple[int, int]]:
        if not self._in_trees:
            return super()._sources(blocks)
        rank, ranks = self._mpi.rank, self._mpi.ranks
        blocks = sorted(blocks, key=lambda b: depth(rank, self.owners[b], ranks))
        return [(b, parent(rank, self.owners[b], ranks)) for b in blocks]

    def _speak(self) -> None:
        if self._may_speak and self._mpi.stop:
            self._mpi.messages.Isend([b"", MPI.BYTE], dest=0, tag=STOP).Free()
            self._may_speak = False

    def _hear_mute_ranks(self) -> None:
        for rank in self._mute:
            if self._mpi.messages.Iprobe(rank, STOP):
                self._mpi.messages.Recv([bytearray(), MPI.BYTE], rank, STOP)
                self._mpi.stop = True


def sent_whole(comm: MPI.Comm) -> set[int]:
    """The ranks of ``comm`` to which a message need not be cut: the ranks on this host; collective.

    With another MPI library than Open MPI, all ranks: the length that it sends eagerly is not known here.
    """
    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    ranks = here.group.Translate_ranks(None, comm.group)
    here.Free()
    return set(ranks if MPI.get_vendor()[0] == "Open MPI" else range(comm.size))
