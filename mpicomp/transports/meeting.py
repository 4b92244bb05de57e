"""Check at the start of each collective call that all ranks make the same one, to prevent deadlocks.

Each transport has communicators of its own.  If two ranks called two transports in different orders, each
would wait for the other in another communicator, for ever.  So a call begins with one allgather in a
communicator that all transports on the same ranks share.  There the ranks see that their calls differ.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from mpicomp.base.errors import MpicompError
from mpicomp.transports.calls import Call, Operation, refuse_different
from mpicomp.transports.waiting import Patience


class Meeting:
    """The communicator that all transports on the ranks of ``comm`` share; collective.

    names     the names of the runs, Aggregators and Descents of these ranks; the same list on all ranks
    patience  how these ranks wait for MPI
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm, self.patience = comm.Dup(), Patience(comm)
        self.names = ["a run"]
        self._under_way = False

    def tell_all(self, number: int) -> list[int]:
        """Allgather one ``number`` per rank, from 0 to 2⁶⁴ - 1, in rank order.

        Raises ``MpicompError`` if an exception ended an earlier call before the other ranks had come.
        """
        if self._under_way:
            raise MpicompError(
                "an exception has ended a call on this rank while it waited for the others, which go on with "
                "that call: the ranks cannot work together any more. End the program."
            )
        # Kept, for MPI may still write there if this is interrupted.
        own, told = self._told = np.array([number], np.uint64), np.empty(self._comm.size, np.uint64)
        self._under_way = True
        self.patience.until(self._comm.Iallgather(own, told).Test)
        self._under_way = False
        return told.tolist()


_MEETINGS: dict[tuple[int, ...], Meeting] = {}  # by the ranks of the job, in their order


def meeting_of(comm: MPI.Comm) -> Meeting:
    """The ``Meeting`` of the ranks of ``comm``, made once and kept as long as the program; collective.

    Raises ``MpicompError`` on all ranks if they share one already and a rank makes another call meanwhile.
    """
    group = comm.Get_group()
    ranks = tuple(group.Translate_ranks(list(range(comm.size)), MPI.COMM_WORLD.Get_group()))
    if MPI.UNDEFINED in ranks:  # processes that the job has started itself
        return Meeting(comm)
    if ranks in _MEETINGS:
        found = _MEETINGS[ranks]
        calls = [Call.of(number) for number in found.tell_all(Call(Operation.BEGIN).number)]
        refuse_different(calls, found.names)
        return found
    return _MEETINGS.setdefault(ranks, Meeting(comm))
