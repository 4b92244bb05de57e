"""The communicator on which all transports over MPI on the same ranks meet."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from mpicomp.transports.meeting import Meeting
from mpicomp.transports.waiting import Patience


class MpiMeeting(Meeting):
    """The meeting of the ranks of ``comm``; collective.

    patience  how these ranks wait for MPI
    """

    def __init__(self, comm: MPI.Comm) -> None:
        super().__init__()
        self._comm, self.patience = comm.Dup(), Patience(comm)

    def _allgather(self, number: int) -> list[int]:
        # Kept, for MPI may still write there if this is interrupted.
        own, told = self._told = np.array([number], np.uint64), np.empty(self._comm.size, np.uint64)
        self.patience.until(self._comm.Iallgather(own, told).Test)
        return told.tolist()


_MEETINGS: dict[tuple[int, ...], MpiMeeting] = {}  # by the ranks of the job, in their order


def meeting_of(comm: MPI.Comm) -> MpiMeeting:
    """The meeting of the ranks of ``comm``, made once and kept as long as the program; collective.

    Raises ``MpicompError`` on all ranks if they share one already and a rank makes another call meanwhile.
    """
    group = comm.Get_group()
    ranks = tuple(group.Translate_ranks(list(range(comm.size)), MPI.COMM_WORLD.Get_group()))
    if MPI.UNDEFINED in ranks:  # processes that the job has started itself
        return MpiMeeting(comm)
    if ranks in _MEETINGS:
        _MEETINGS[ranks].begin()
        return _MEETINGS[ranks]
    return _MEETINGS.setdefault(ranks, MpiMeeting(comm))
