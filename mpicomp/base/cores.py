"""The cores of this host that this process may use."""

from __future__ import annotations

import os


def cores() -> set[int]:
    """The numbers of the cores on which this process may run; never empty."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))  # macOS binds no process to a core
