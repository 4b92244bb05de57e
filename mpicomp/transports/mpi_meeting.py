"""The communicator on which all transports over MPI on the same ranks meet."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from mpi4py import MPI

from mpicomp.base.errors import MpicompError
from mpicomp.transports.calls import Call, Operation
from mpicomp.transports.children import is_child
from mpicomp.transports.ending import aborts, notice_abort
from mpicomp.transports.launcher import note_meeting
from mpicomp.transports.meeting import Features, Meeting, begin
from mpicomp.transports.waiting import Patience


class MpiMeeting(Meeting):
    """The meeting of the ranks of ``comm``; collective.

    patience  how these ranks wait for MPI
    late      called again and again while this rank waits for the others; None: nothing is
    survives  whether ranks may have died that others go on without: they never come to ``leave``
    """

    def __init__(self, comm: MPI.Comm) -> None:
        super().__init__()
        self._comm, self.patience = comm.Dup(), Patience(comm)
        self.late: Callable[[], None] | None = None
        self.survives = False

    def _allgather(self, number: int) -> list[int]:
        # Kept, for MPI may still write there if this is interrupted.
        own, told = self._told = np.array([number], np.uint64), np.empty(self._comm.size, np.uint64)
        come, late = self._comm.Iallgather(own, told).Test, self.late
        self.patience.until(come if late is None else lambda: come() or late())
        return told.tolist()

    def leave(self) -> None:
        """At the end of the program, wait for the other ranks, as MPI does; their calls meanwhile fail.

        Not if the launcher ends them with this one.
        """
        own = Call(Operation.LEAVE).number
        # Interrupted now or in an earlier call; or a rank has died.
        with suppress(KeyboardInterrupt, MpicompError, MPI.Exception):
            while not (MPI.Is_finalized() or is_child() or aborts()):
                if set(self.tell_all(own)) == {own}:
                    return


_MEETINGS: dict[tuple[int, ...], MpiMeeting] = {}  # by the ranks of the job, in their order


@atexit.register  # now, so that it is called after what all Aggregators do at the end
def _leave() -> None:
    """Leave all meetings, in the order in which they were made, the same on all ranks."""
    for ranks, meeting in _MEETINGS.items():
        if len(ranks) > 1 and not meeting.survives:
            meeting.leave()
    if not is_child():
        note_meeting(going_on=False)


def _part_at_finalize() -> None:
    """If the program calls ``MPI.Finalize`` itself, note there that the ranks have parted."""
    key = MPI.Comm.Create_keyval(delete_fn=lambda *_: note_meeting(going_on=False))
    MPI.COMM_SELF.Set_attr(key, None)  # which MPI_Finalize deletes first of all


def meeting_of(comm: MPI.Comm, asked: Features, late: Callable[[], None] | None = None) -> MpiMeeting:
    """The meeting of the ranks of ``comm``, made once and kept as long as the program; collective.

    asked  what this rank asks of the transport that begins (see ``meeting.begin``)
    late   called again and again while this rank waits for the others, to end the job in time

    Raises ``MpicompError`` on all ranks if a rank makes another call meanwhile, or asks for something else.
    """
    group = comm.Get_group()
    ranks = tuple(group.Translate_ranks(list(range(comm.size)), MPI.COMM_WORLD.Get_group()))
    found = _MEETINGS.get(ranks)
    if found is None:
        begun = comm.Ibarrier()  # on all ranks, though only those with a limit need it: Dup has none
        while not begun.Test():
            if late is not None:
                late()
            time.sleep(0.001)
        found = MpiMeeting(comm)
        if MPI.UNDEFINED not in ranks:  # else of processes that the job has started itself
            _MEETINGS[ranks] = found
            notice_abort()
            _part_at_finalize()
            note_meeting(going_on=True)
    if asked.on_failure:
        found.survives = True
    found.late = late
    try:
        begin(found.tell_all, found.names, asked)
    finally:
        found.late = None
    return found
