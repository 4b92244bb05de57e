"""End the whole job when one rank meets an error.

If only that rank ended, it would wait in MPI_Finalize for the others, and these for its messages, for ever.
This file does not load MPI: it asks at the time of the error whether the program has.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from functools import wraps
from types import TracebackType
from typing import Any, NoReturn

from mpicomp.base.errors import MpicompError
from mpicomp.transports.launcher import note_status

_FIRST, _TURN = 5.0, 2.0  # seconds in which the server may print the error; then each rank in turn
_ABORT = 3.0  # seconds for Abort to end this process
_GRACE = 0.3  # seconds for the launcher to pass on a traceback: MPICH's drops what it has not read


def end_now() -> NoReturn:
    """Wait 0.3 s for the launcher to pass on printed text, then abort every rank; callable in any thread."""
    note_status(1)
    time.sleep(_GRACE)
    # An Abort that cannot reach the launcher may not return, and holds the GIL: no thread of Python could end
    # this process then, and faulthandler's does.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    faulthandler.dump_traceback_later(_ABORT, exit=True, file=nowhere)
    sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(1)
    time.sleep(_ABORT)  # MPICH's Abort may return
    os._exit(1)


def watch() -> None:
    """From now on an uncaught exception ends the job, if MPI has joined this process to others by then."""
    global _printing
    if sys.excepthook is not _end_the_job:
        _printing, sys.excepthook = sys.excepthook, _end_the_job


_printing = sys.excepthook  # Python's own, or the program's
_ending = False
_aborts = False


def notice_abort() -> None:
    """Notice from now on whether mpi4py is asked to abort the job once this process has ended."""
    MPI: Any = sys.modules["mpi4py.MPI"]
    set_status = getattr(MPI, "_set_abort_status", None)
    if set_status is None or hasattr(set_status, "__wrapped__"):
        return

    @wraps(set_status)
    def noticed(status: Any) -> None:
        global _aborts
        _aborts = bool(status)
        set_status(status)

    MPI._set_abort_status = noticed


def aborts() -> bool:
    """Whether MPI ends the other ranks as this process ends, so that it need not wait for them.

    So ``python -m mpi4py`` and ``mpicomp launch`` end the job after ``sys.exit(1)`` on one rank.
    """
    return _aborts


def _end_the_job(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The ``sys.excepthook`` of a job: print an uncaught exception as usual, and end every rank.

    In a process that MPI has not joined to others, it prints alone.
    Most ``MpicompError`` are raised on several ranks alike.  So rank 0 prints at once and higher ranks wait:
    the lowest one has then ended the job before the others print the same text.
    """
    global _ending
    if _ending:  # the program's hook calls the one before it, which is this one
        return sys.__excepthook__(kind, error, trace)
    _ending, joined = True, _joined()
    try:
        if joined is not None and issubclass(kind, MpicompError) and joined.rank > 0:
            time.sleep(_FIRST + _TURN * min(joined.rank - 1, 10))
        _printing(kind, error, trace)
    finally:
        _ending = False
        if joined is not None:
            end_now()


def _joined() -> Any:
    """MPI_COMM_WORLD if MPI has joined this process to others, and is not finalized; else None."""
    MPI = sys.modules.get("mpi4py.MPI")
    if MPI is None or not MPI.Is_initialized() or MPI.Is_finalized() or MPI.COMM_WORLD.size == 1:
        return None
    return MPI.COMM_WORLD
