"""Processes that a rank has started by ``multiprocessing`` or ``os.fork``: MPI works in the rank alone."""

from __future__ import annotations

import os
import sys

from mpicomp.base.errors import ConfigError

_imported_by = os.getpid()  # a fork has another number


def is_child() -> bool:
    """Whether ``multiprocessing`` has started this process, or a fork since mpicomp was imported."""
    if os.getpid() != _imported_by:
        return True
    started = sys.modules.get("multiprocessing.process")  # loaded in each process that it has started
    return started is not None and started.parent_process() is not None


def refuse_child() -> None:
    """Raise ``ConfigError`` in a process that a rank has started.

    There MPI ends by a segmentation fault, waits for ever, or takes the rank's own messages.
    """
    if is_child():
        raise ConfigError(
            "this process was started by a rank, as multiprocessing does, and MPI joins the ranks alone. "
            "Make this call in the rank itself, or start the program without mpirun and --ranks."
        )
