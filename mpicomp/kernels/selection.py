"""Selecting the coordinates of largest magnitude."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def top_k(x: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """The indices of the k largest magnitudes, increasing; ties go to the lowest index."""
    if k == x.size:
        return np.arange(k)
    magnitude = np.abs(x)
    threshold = np.partition(magnitude, x.size - k)[x.size - k]
    above = np.flatnonzero(magnitude > threshold)
    tied = np.flatnonzero(magnitude == threshold)[: k - above.size]
    return np.sort(np.concatenate([above, tied]))
