"""End the whole job when one rank meets an error.

If only that rank ended, the others would wait for its messages for ever.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import NoReturn

from mpi4py import MPI

from mpicomp.base.errors import MpicompError
from mpicomp.transports.launcher import note_status
from mpicomp.transports.orphan import end_with_parent

_FIRST, _TURN = 5.0, 2.0  # seconds in which the server may print the error; then each rank in turn
_ABORT = 3.0  # seconds for Abort to end this process
_GRACE = 0.3  # seconds for the launcher to pass on a traceback: MPICH's drops what it has not read


def end_now() -> NoReturn:
    """Wait 0.3 s for the launcher to pass on printed text, then abort every rank; callable in any thread."""
    note_status(1)
    time.sleep(_GRACE)
    threading.Thread(target=MPI.COMM_WORLD.Abort, args=(1,), daemon=True).start()
    time.sleep(_ABORT)
    os._exit(1)  # MPICH's Abort may return, and one that cannot reach the launcher may not


def _end_the_job(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The ``sys.excepthook`` of a job: print an uncaught exception as usual, and end every rank.

    Most ``MpicompError`` are raised on several ranks alike.  So rank 0 prints at once and higher ranks wait:
    the lowest one has then ended the job before the others print the same text.
    """
    rank = MPI.COMM_WORLD.rank
    if issubclass(kind, MpicompError) and rank > 0:
        time.sleep(_FIRST + _TURN * min(rank - 1, 10))
    try:
        _printing(kind, error, trace)
    finally:
        end_now()


_printing = sys.excepthook  # Python's own, or the program's
if MPI.COMM_WORLD.size > 1:
    sys.excepthook = _end_the_job
    end_with_parent()
