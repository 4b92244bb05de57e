"""Where ranks meet as each call begins, whichever transport it is for.

Each transport has communicators of its own.  Ranks that called two of them in different orders would wait in
different ones, each for the other, for ever.  So a call begins with one exchange in a communicator that all
transports on the same ranks share, and there the ranks see that their calls differ.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from mpicomp.base.errors import MpicompError
from mpicomp.transports.calls import Call, Operation, refuse_different
from mpicomp.transports.waiting import Patience


class Meeting:
    """The exchange of the ranks of ``comm``; collective.

    names     of what these ranks call together, by number; the same on all ranks
    patience  how they wait
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm, self.patience = comm.Dup(), Patience(comm)
        self.names = ["a run"]
        self._under_way = False

    def tell_all(self, number: int) -> list[int]:
        """Each rank's ``number``, from 0 to 2⁶⁴ - 1, in rank order, on every rank."""
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
    """The meeting of the ranks of ``comm``, which lasts as long as the program; collective.

    Raises ``MpicompError`` on all ranks if they have met before, and one of them comes with another call.
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
