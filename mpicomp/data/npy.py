"""Arrays in .npy files, as numpy.save writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import DataError


def read_npy(path: Path) -> NDArray[Any]:
    """The array in the file.

    Raises ``DataError`` unless the file is one array, whole, without Python objects.  No more memory is taken
    than the file has bytes.
    """
    try:
        with np.errstate(over="ignore"):  # of the bytes of a shape that is refused then
            mapped = np.lib.format.open_memmap(path, mode="r")
        beyond = path.stat().st_size - mapped.offset - mapped.nbytes
    except (OSError, ValueError, TypeError, OverflowError) as error:
        reason = str(getattr(error, "strerror", None) or error).rstrip(".")
        raise DataError(f"cannot read {path}: {reason}.") from None
    if beyond:
        raise DataError(f"{path} holds {beyond} bytes after its array; allowed: one array a file.")
    return np.array(mapped)
