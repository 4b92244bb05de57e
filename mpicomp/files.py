"""Files that are either there in full or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from mpicomp.errors import RecordError


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` under a temporary name, flush it to the disk, and rename it into place.

    Raises ``RecordError`` naming the file if the disk is full, read-only or gone.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RecordError(f"cannot write {path}: {error.strerror}.") from None
