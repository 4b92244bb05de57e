"""Real numbers, rounded to multiples of 1/4096, as natural numbers, which take few bytes (``codecs.varint``).

The error is absolute.  So the mean of many numbers is as exact as each of them, also where it is far smaller
than they are; of floats with few bits it would be noise.
"""

from __future__ import annotations

from math import inf, isnan, nan

from mpicomp.codecs.messages import Natural

UNIT = 2.0**-12
_MOST = 2**61  # the largest multiple, in magnitude


def to_natural(x: float) -> Natural:
    """The nearest multiple of UNIT to ``x``: 0 for NaN, else 1, 2, 3, .. for 0, UNIT, -UNIT, 2 UNIT, ..

    Below 2 in magnitude it takes 2 bytes at most, and below 256 3 bytes.  Beyond 5.6e14 all numbers are
    infinite.
    """
    if isnan(x):
        return Natural(0)
    m = round(min(max(x / UNIT, -_MOST), _MOST))
    return Natural(2 * m if m > 0 else 1 - 2 * m)


def of_natural(code: Natural) -> float:
    """The number that ``to_natural`` made into ``code``."""
    if code == 0:
        return nan
    m = code // 2 if code % 2 == 0 else -(code // 2)
    return m * UNIT if abs(m) < _MOST else m * inf
