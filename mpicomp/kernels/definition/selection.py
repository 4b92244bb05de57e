"""Selecting coordinates by their magnitude.

Magnitudes are compared by their bits without the sign, as unsigned integers: the order of the numbers,
with NaN above infinity, so that what is not finite is selected first and refused by its encoder.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array, Indices


def nonzero(x: Array) -> Indices:
    """The indices of the entries that are not 0, increasing."""
    return np.flatnonzero(x)


def count_nonzero(x: Array) -> int:
    """The number of entries that are not 0."""
    return int(np.count_nonzero(x))


def at_least(x: Array, lam: float) -> Indices:
    """The indices of the entries with |x_j| >= lam and x_j != 0, increasing."""
    return np.flatnonzero(magnitude_bits(x) >= least_bits(lam, x.dtype))


def top_k(x: Array, k: int) -> Indices:
    """The indices of the k largest magnitudes, increasing; ties go to the lowest index."""
    if k == x.size:
        return np.arange(k)
    bits = magnitude_bits(x)
    threshold = np.partition(bits, x.size - k)[x.size - k]
    above = np.flatnonzero(bits > threshold)
    tied = np.flatnonzero(bits == threshold)[: k - above.size]
    return np.sort(np.concatenate([above, tied]))


@lru_cache  # a run asks for one in each round
def least_bits(lam: float, dtype: np.dtype) -> int:
    """The bits of the least positive number of type ``dtype`` that is at least lam >= 0."""
    with np.errstate(over="ignore"):
        bound = np.array([lam]).astype(dtype)
    if float(bound[0]) < lam:  # as doubles: numpy would round a bare float to single precision first
        bound = np.nextafter(bound, dtype.type(np.inf))
    return max(1, int(magnitude_bits(bound)[0]))


def magnitude_bits(x: Array) -> NDArray[np.unsignedinteger]:
    return np.abs(np.ascontiguousarray(x)).view(f"u{x.itemsize}")
