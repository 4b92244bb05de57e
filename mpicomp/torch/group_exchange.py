"""Sharded averaging over a process group: each rank sends to every other rank directly."""

from __future__ import annotations

from mpicomp.transports.rank_exchange import RankExchange
from mpicomp.transports.ranks import NOTHING, STOP


class GroupExchange(RankExchange):
    """The exchange of ``blocks`` blocks between the ranks of a process group.

    A rank without workers and blocks tells rank 0 in every round, in an empty message, whether it was asked
    to stop.
    """

    def _speak(self) -> None:
        if self._transport.rank in self._mute:
            sent, status = self._with_status(NOTHING)
            self._transport.post(self._transport.messages, sent, status)

    def _hear_mute_ranks(self) -> None:
        t = self._transport
        arrivals = t.arrivals(t.messages, self._mute)
        for _ in self._mute:
            t.stop |= t.take(t.messages, arrivals)[1] == STOP
        arrivals.let_go()
