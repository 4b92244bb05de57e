"""The command of a second Python process."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def interpreter(*arguments: str) -> list[str]:
    """The command of a Python with ``arguments``, which searches for modules where this process does.

    ``-m`` and ``-c`` alone would search the current folder first.  There a file of the user's, such as
    statistics.py or mpicomp.py, would be run in place of a library's.
    """
    return [sys.executable, *(() if _searches_here() else ("-P",)), *arguments]


def _searches_here() -> bool:
    """Whether this process searches the current folder first."""
    first = next(iter(sys.path), None)
    with suppress(FileNotFoundError):  # a folder that was deleted
        return first == "" or first == os.getcwd()
    return False
