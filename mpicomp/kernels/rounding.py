"""Stochastic rounding to level sets, and the norms they are relative to.

All arithmetic is float64, one IEEE operation at a time, so that every backend rounds alike.  A word w
rounds up when w < frac * 2^32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.kernels.philox import Words

Float = NDArray[np.floating]
Levels = NDArray[np.int64]

_WORDS = 2.0**32


def norm(x: Float, p: str) -> float:
    """The 2-norm or max-norm of x; the sum of squares is numpy's pairwise sum, not BLAS's."""
    top = float(np.max(np.abs(x), initial=0.0))
    if p == "inf" or top == 0.0:
        return top
    # Dividing by the largest entry first keeps huge and tiny vectors from over- and underflowing.
    return top * float(np.sqrt(np.sum(np.square(x.astype(np.float64) / top))))


def uniform_levels(x: Float, scale: float, s: int, words: Words) -> Levels:
    """sign(x) * rho(s |x| / scale), rho rounding to one of the two nearest integers without bias."""
    if scale == 0.0:
        return np.zeros(x.size, dtype=np.int64)
    t = np.abs(x.astype(np.float64)) / scale * s
    low = np.floor(t)
    level = np.minimum(low + (words < (t - low) * _WORDS), s).astype(np.int64)
    return np.where(x < 0, -level, level)


def powers_of_two(magnitude: NDArray[np.float64], lowest: int, words: Words) -> Levels:
    """Exponents e with 2^e an unbiased rounding of ``magnitude`` to {0} and the powers from 2^lowest up.

    0 is reported as ``lowest - 1``.  An exact power of two, and 0, never moves.
    """
    mantissa, exponent = np.frexp(magnitude)  # magnitude = mantissa 2^exponent, 1/2 <= mantissa < 1
    low = exponent.astype(np.int64) - 1
    rounded = low + (words < (2 * mantissa - 1) * _WORDS)
    tiny = (low < lowest) | (magnitude == 0)  # frexp gives 0 the exponent of 1/2
    lifted = words < np.ldexp(np.minimum(magnitude, 2.0**lowest), -lowest) * _WORDS
    return np.where(tiny, np.where((magnitude > 0) & lifted, lowest, lowest - 1), rounded)
