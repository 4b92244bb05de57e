"""Where the program's own code is on the stack, so that a warning points at it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_OURS = str(Path(__file__).parents[1]) + os.sep


def level_of_program() -> int:
    """The stack level, for the caller's warning, of the first line that is neither ours nor torch's."""
    torch = sys.modules.get("torch")
    packages = (_OURS, *(str(Path(folder)) + os.sep for folder in getattr(torch, "__path__", ())))
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(packages):
        level, frame = level + 1, frame.f_back
    return level + 1
