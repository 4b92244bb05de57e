"""Ranks do not outlive their launcher, however it ended."""

from __future__ import annotations

import os
import select
import signal
import threading


def end_with_parent() -> None:
    """Let this process be killed when the one that started it ends.  Linux only; elsewhere it does nothing.

    A thread sleeps on the parent's file descriptor.  The kernel's PR_SET_PDEATHSIG would not do here: it
    looks at the thread that forked, and Open MPI forks many ranks from threads that end at once.
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
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True, name="mpicomp orphan").start()
