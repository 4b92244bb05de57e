"""Pass on mpirun's standard output to a file: mpirun itself drops what it cannot write, and does not tell."""

from __future__ import annotations

import os
import stat


def may_fill(target: int) -> bool:
    """Whether the descriptor ``target`` is a file, whose disk may be full, or a device but no terminal."""
    mode = os.fstat(target).st_mode
    return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(target))


def pass_on(source: int, target: int, failed: list[OSError]) -> None:
    """Copy from the descriptor ``source`` to ``target``, until it ends.

    After an error, which is appended to ``failed``, nothing more is written.
    """
    while text := os.read(source, 2**16):
        try:
            while text and not failed:
                text = text[os.write(target, text) :]
        except OSError as error:
            failed.append(error)
