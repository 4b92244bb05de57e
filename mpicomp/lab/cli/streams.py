"""Make stdout and stderr safe to write to, even when closed, full or ASCII-only; and warnings one line."""

from __future__ import annotations

import io
import os
import sys
import warnings
from pathlib import Path


def prepare_streams() -> None:
    """Make both streams usable: a closed one discards its text, a letter it cannot encode becomes "?"."""
    # Else the next file opened, a record or one of MPI's, would get the stream's number, and C libraries
    # would print into it.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    # Not by the stream's number: a library that was imported before may have opened its file under it.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (while the process lasts)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="replace")


def shorten_warnings() -> None:
    """Print our ``UserWarning``s, which are for the user, as errors are: without file and source line."""
    whole, ours = warnings.formatwarning, str(Path(__file__).parents[2])

    def form(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if category is UserWarning and filename.startswith(ours):
            return f"mpicomp: {message}\n"
        return whole(message, category, filename, lineno, line)

    warnings.formatwarning = form


def abandon_stdout() -> None:
    """Discard all further output, including the text that is buffered when the process ends."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
