"""Normal draws for problems: a function of the stream, as every draw is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from mpicomp.keys import Stream


def normals(stream: Stream, count: int) -> NDArray[np.float64]:
    """``count`` independent standard normals: the normal quantiles of the stream's uniforms."""
    return ndtri(stream.uniform(count))
