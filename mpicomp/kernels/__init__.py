"""Array kernels.  ``definition`` holds numpy's, which every other backend must match byte for byte.

``of`` picks the backend by the vectors at hand: the compiled kernels where a vector is long, numpy's
where it is short and loading a compiler would cost more than it saves.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from mpicomp.kernels import definition
from mpicomp.kernels.loading import load, loaded

LONG = 2**14  # from here on a call gains more than some tens of microseconds, a run more than the loading


def of(x: NDArray[np.floating], *others: NDArray[np.floating]) -> ModuleType:
    """The kernels for these vectors, whose length is that of x or less."""
    if x.size < LONG or not all(_plain(a) for a in (x, *others)):
        return definition
    return load()


def sized(length: int) -> ModuleType:
    """The kernels for draws and index sets of that length; the compiled ones for any, once they are there."""
    return load() if length >= LONG or loaded() else definition


def add_scaled(out: NDArray[np.floating], x: NDArray[np.floating], scale: float) -> None:
    """out += scale * x in float64, rounded to the type of ``out``; one pass and no temporary if long."""
    of(out, x).add_scaled(out, x, scale)


def _plain(x: NDArray[np.floating]) -> bool:
    return x.ndim == 1 and x.flags.c_contiguous and x.dtype in (np.float64, np.float32)
