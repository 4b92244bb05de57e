"""A user's script on one rank of ``mpicomp launch``: ``python -m mpicomp.lab.jobs.script SCRIPT ARGUMENTS``.

As under ``python -m mpi4py``, the rest of the job does not outlive an uncaught exception.  Ctrl-C is an
interrupt of all ranks (see ``interrupts``); where a script does not handle it, a rank waits until the others
have ended too, so that their own handlers can do their work.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
import traceback

from mpi4py import run

from mpicomp.runtime import interrupts
from mpicomp.transports.launcher import launched_rank, note_status

INTERRUPTED = 130  # exit status of the job where nobody handles an interrupt
_RUNNERS = {__file__, run.__file__, runpy.__file__, "<frozen runpy>"}


def main() -> None:
    """Run the script that the command line names."""
    interrupted = False

    def end_together() -> None:
        mpi = sys.modules.get("mpi4py.MPI")
        if interrupted and mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
            mpi.Finalize()  # waits for the other ranks
        if interrupted:
            note_status(INTERRUPTED)

    atexit.register(end_together)  # before all others, so it is called after them
    interrupts.obey()
    if sys.flags.safe_path:
        sys.path.insert(0, os.getcwd())  # as under ``python -m``: mpi4py writes the script's folder over it
    try:
        run.run_command_line()
    except KeyboardInterrupt as error:
        interrupted = True
        if launched_rank() == 0:
            traceback.print_exception(_of_script(error))
    except SystemExit as error:
        run.set_abort_status(error)
        raise
    except BaseException as error:
        error = _of_script(error)
        sys.excepthook(type(error), error, error.__traceback__)  # ends the job, once there is an aggregator
        note_status(1)
        run.set_abort_status(1)
        sys.exit(1)


def _of_script(error: BaseException) -> BaseException:
    """``error`` without the frames above the script's own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _RUNNERS:
        trace = trace.tb_next
    return error.with_traceback(trace)


if __name__ == "__main__":
    main()
