"""Pass on mpirun's standard error, without its paragraphs on the job's end if the user knows why."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress

# Open MPI's paragraphs stand between lines of dashes, and some end with a zero byte.
_LINE = b"-" * 74 + b"\n"
PARAGRAPH = re.compile(_LINE + rb"(?:MPI_ABORT was|prterun|mpirun|Primary job) [\s\S]*?\n" + _LINE + rb"\0?")


def pass_on(source: int, target: int, known: Callable[[], bool]) -> None:
    """Copy from the descriptor ``source`` to ``target``, until it ends.

    known  returns whether the user knows why the job ends: a rank has printed the reason, or the user has
           ended the job.  Then Open MPI's paragraphs, which would repeat it, are left out
    """
    held = b""
    while chunk := os.read(source, 2**16):
        held += chunk
        paragraph = held.find(_LINE) if known() else -1
        ready, held = (held, b"") if paragraph < 0 else (held[:paragraph], held[paragraph:])
        _write(target, ready)
    _write(target, PARAGRAPH.sub(b"", held))


def _write(target: int, text: bytes) -> None:
    # Text that cannot be written (a full disk, a reader that is gone) is dropped.  If it were kept or copying
    # ended, mpirun would wait for ever with a full pipe.
    with suppress(OSError):
        while text:
            text = text[os.write(target, text) :]
