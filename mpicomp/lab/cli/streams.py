"""Standard output and error may be closed, full, or unable to encode the letters that a command writes."""

from __future__ import annotations

import io
import os
import sys


def prepare_streams() -> None:
    """Make both streams usable: a closed one discards its text, a letter it cannot encode becomes "?"."""
    # Else the next file that is opened, a record or MPI's, would be what C libraries take for the stream.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 (while the process lasts)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="replace")


def abandon_stdout() -> None:
    """Discard all further output, including the text that is buffered when the process ends."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
