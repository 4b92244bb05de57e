"""Read a .npy file, as numpy.save writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import DataError
from mpicomp.base.files import refuse_endless


def read_npy(path: Path) -> NDArray[Any]:
    """The array in the file ``path``.

    Raises ``DataError`` unless the file holds exactly one complete array of numbers.  It takes no more memory
    than the file has bytes.
    """
    refuse_endless(path)
    try:
        with np.errstate(over="ignore"):  # of the bytes of a shape that is refused then
            mapped = np.lib.format.open_memmap(path, mode="r")
        beyond = path.stat().st_size - mapped.offset - mapped.nbytes
    except Exception as error:  # a header that is no header ends in errors of a dozen classes
        reason = str(getattr(error, "strerror", None) or error).partition("\n")[0].rstrip(".")
        raise DataError(f"cannot read {path}: {reason or type(error).__name__}.") from None
    if mapped.dtype.kind not in "biufc":  # of entries without bytes the shape may be any
        raise DataError(f"{path} holds an array of type {mapped.dtype}; allowed: numbers.")
    if beyond:
        raise DataError(f"{path} holds {beyond} bytes after its array; allowed: one array a file.")
    return np.array(mapped)
