"""Read the starting point x⁰ of a comparison, if it does not start at the problem's own."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError, DataError
from mpicomp.data.npy import read_npy


def starting_point(x0: str | tuple[float, ...] | None) -> Array | None:
    """The array that a suite's ``x0`` names: a file, or its entries.  Raises ``ConfigError`` for neither."""
    if x0 is None:
        return None
    if isinstance(x0, str):
        return read_x0("x0", Path(x0))
    if not all(type(entry) in (int, float) for entry in x0):
        raise ConfigError(f"x0 = {list(x0[:4])} ..; allowed: a file that numpy.save wrote, or numbers.")
    return np.array(x0, dtype=np.float64)


def read_x0(name: str, path: Path) -> Array:
    """The array in the file ``path``, which ``name`` names in messages.

    Raises ``ConfigError`` if the file holds no array.
    """
    try:
        return read_npy(path)
    except DataError as error:
        raise ConfigError(f"{name}: {error} Give a file that numpy.save wrote.") from None


def fingerprint(x0: Array | None) -> str:
    """The SHA-256 of the entries of x0, for a run's record; an empty text for the problem's own x⁰."""
    return "" if x0 is None else f"sha256 {sha256(x0.tobytes()).hexdigest()}"
