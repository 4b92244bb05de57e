"""Kill this rank when its launcher dies, and remove the shared-memory files that it leaves."""

from __future__ import annotations

import os
import re
import select
import signal
import threading
from contextlib import suppress
from pathlib import Path

# Open MPI's ranks on a host pass messages through these files; the launcher removes them, unless killed.
_SEGMENTS = re.compile(r" (/dev/shm/(?:sm|vader)_segment\.\S+)$", re.MULTILINE)


def end_with_parent() -> None:
    """Kill this process when its parent ends.  Needs Linux 5.3; elsewhere it does nothing.

    A thread sleeps on the parent's process file descriptor.  The kernel's PR_SET_PDEATHSIG would not do: it
    watches the thread that forked, and Open MPI forks many ranks from threads that end at once.
    """
    if not hasattr(os, "pidfd_open"):
        return
    try:
        parent = select.poll()
        parent.register(os.pidfd_open(os.getppid()), select.POLLIN)
    except OSError:  # a kernel before 5.3
        return

    def wait() -> None:
        parent.poll()
        remove(segments(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True, name="mpicomp orphan").start()


def segments(process: int) -> set[Path]:
    """The shared-memory files that Open MPI has mapped into the process; none on other systems than Linux."""
    with suppress(OSError):
        return {Path(name) for name in _SEGMENTS.findall(Path(f"/proc/{process}/maps").read_text())}
    return set()


def remove(files: set[Path]) -> None:
    """Remove the files that still exist."""
    for file in files:
        with suppress(OSError):
            file.unlink()
