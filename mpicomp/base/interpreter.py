"""The command of a second Python process."""

from __future__ import annotations

import os
import sys


def interpreter(*arguments: str) -> list[str]:
    """The command of a Python with ``arguments``, which searches for modules where this process does.

    ``-m`` and ``-c`` alone would search the current folder first.  There a file of the user's, such as
    statistics.py or mpicomp.py, would be run in place of a library's.
    """
    here = sys.path[:1] in ([""], [os.getcwd()])
    return [sys.executable, *(() if here else ("-P",)), *arguments]
