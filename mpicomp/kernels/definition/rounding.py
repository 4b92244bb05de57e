"""Stochastic rounding to level sets.

All arithmetic is float64, one IEEE operation at a time, so that every backend rounds alike.  A word w
rounds t up to the next level when w < frac(t) 2^32.
"""

from __future__ import annotations

from math import ldexp

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array, Words

Levels = NDArray[np.int64]

_WORDS = 2.0**32


def uniform_levels(x: Array, scale: float, r: float | NDArray[np.float64], words: Words) -> Levels:
    """sign(x) * rho(r |x| / scale), rho rounding to one of the two nearest integers without bias.

    With t = |x| (r (2^32 / scale)), rho is the upper one, where w < t mod 2^32, that is, the upper half of
    ceil(t) + (2^32 - 1 - w).  ``r``: the levels of one sign, or, real numbers, those of each coordinate.
    """
    x, scale = lifted(x, scale)
    gain = r * (_WORDS / scale if scale else 0.0)
    t = np.ceil(np.multiply(np.abs(x), gain, dtype=np.float64)).astype(np.uint64)
    level = np.minimum((t + ~words) >> np.uint64(32), np.ceil(r).astype(np.uint64)).astype(np.int64)
    return np.where(x < 0, -level, level)


def lifted(x: Array, scale: float) -> tuple[Array, float]:
    """x and its norm; both times a power of two if the inverse of the norm would overflow."""
    exponent = lift(scale)
    return (np.ldexp(x, exponent), ldexp(scale, exponent)) if exponent else (x, scale)


def lift(scale: float) -> int:
    """The exponent of the power of two that ``lifted`` multiplies by."""
    return 600 if 0.0 < scale < 2.0**-900 else 0


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
