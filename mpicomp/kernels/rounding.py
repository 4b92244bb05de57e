"""Stochastic rounding to level sets.

All arithmetic is float64, one IEEE operation at a time, so that every backend rounds alike.  A word w
rounds t up to the next level when w < frac(t) 2^32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.kernels.philox import Words

Float = NDArray[np.floating]
Levels = NDArray[np.int64]

_WORDS = 2.0**32


def uniform_levels(x: Float, scale: float, s: int, words: Words) -> Levels:
    """sign(x) * rho(s |x| / scale), rho rounding to one of the two nearest integers without bias.

    With t = |x| (s / scale 2^32), rho is the upper one, where w < t mod 2^32, that is, the upper half of
    ceil(t) + (2^32 - 1 - w).
    """
    x, scale = lifted(x, scale)
    gain = s / scale * _WORDS if scale else 0.0
    t = np.ceil(np.multiply(np.abs(x), gain, dtype=np.float64)).astype(np.uint64)
    level = np.minimum((t + ~words) >> np.uint64(32), np.uint64(s)).astype(np.int64)
    return np.where(x < 0, -level, level)


def lifted(x: Float, scale: float) -> tuple[Float, float]:
    """x and its norm, times a power of two where the norm is so small that its inverse would overflow."""
    return (np.ldexp(x, 600), scale * 2.0**600) if 0.0 < scale < 2.0**-900 else (x, scale)


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
