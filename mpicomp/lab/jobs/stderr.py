"""Pass on mpirun's standard error, without what it says of the job's end if the user knows why."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress

# Open MPI's paragraphs stand between lines of dashes, and some end with a zero byte.  MPICH has one line.
_LINE = b"-" * 74 + b"\n"
_BEGIN = re.compile(_LINE + rb"|^Abort\(", re.MULTILINE)
ON_THE_END = re.compile(
    _LINE + rb"(?:MPI_ABORT was|prterun|mpirun|Primary job) [\s\S]*?\n" + _LINE + rb"\0?"
    rb"|^Abort\(\d+\) on node .*: application called MPI_Abort\(.*\n",
    re.MULTILINE,
)


def pass_on(source: int, target: int, known: Callable[[], bool]) -> None:
    """Copy from the descriptor ``source`` to ``target``, until it ends.

    known  returns whether the user knows why the job ends: a rank has printed the reason, or the user has
           ended the job.  Then mpirun's own words on it are left out
    """
    held = b""
    while chunk := os.read(source, 2**16):
        held += chunk
        begin = _BEGIN.search(held) if known() else None
        start = len(held) if begin is None else begin.start()
        ready, held = held[:start], held[start:]
        _write(target, ready)
    _write(target, ON_THE_END.sub(b"", held))


def _write(target: int, text: bytes) -> None:
    # Text that cannot be written (a full disk, a reader that is gone) is dropped.  If it were kept or copying
    # ended, mpirun would wait for ever with a full pipe.
    with suppress(OSError):
        while text:
            text = text[os.write(target, text) :]
