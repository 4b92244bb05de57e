"""A line search as a state machine: from one trial step to the next, by the weak Wolfe conditions.

Let φ(t) = f(x + t p) with φ'(0) < 0.  A step t is too long if φ(t) > φ(0) + c_1 t φ'(0), else too short if
φ'(t) < c_2 φ'(0), else it fits; 0 < c_1 < c_2 < 1.  Between the longest step that was too short and the
shortest that was too long lies one that fits.  Lewis, Overton (2013), Theorem 4.7: halving this interval, or
growing t by a factor while nothing was too long, finds it if f is smooth and bounded below.  Here the next
trial is the minimiser of a cubic, kept away from the ends: the interval shrinks by a tenth at least.  At a
step that fits, (∇f(x + t p) - ∇f(x))'p >= (c_2 - 1) φ'(0) > 0: a quasi-Newton pair needs this.
"""

from __future__ import annotations

from math import inf, nan, sqrt

import numpy as np
from numpy.typing import NDArray

DECREASE, CURVATURE = 1e-3, 0.9  # c_1 and c_2, those of L-BFGS-B

Point = NDArray[np.float64]  # t, φ(t) - φ(0) and φ'(t)


def bracket(slope: float) -> tuple[Point, Point]:
    """The ends (low, high) of the interval before the first trial: t = 0 and t = ∞.  ``slope`` is φ'(0)."""
    return np.array([0.0, 0.0, slope]), np.array([inf, 0.0, 0.0])


def next_trial(trial: Point, slope: float, low: Point, high: Point) -> float | None:
    """The step t to try after ``trial``; None if ``trial`` fits.

    trial      the last trial: its t, φ(t) - φ(0) and φ'(t)
    slope      φ'(0)
    low, high  the ends of the interval, changed in place to those of the next one
    """
    t, change, slope_there = trial.tolist()
    before = low.copy()
    if change > DECREASE * t * slope:
        high[:] = trial
    elif slope_there < CURVATURE * slope:
        low[:] = trial
    else:
        return None
    if high[0] < inf:
        width = high[0] - low[0]
        return _within(_minimiser(low, high), low[0] + 0.1 * width, high[0] - 0.1 * width)
    width = t - before[0]
    return _within(_minimiser(before, low), t + 1.1 * width, t + 4 * width)


def _within(t: float, least: float, largest: float) -> float:
    """t moved into the interval; its middle where t is not a number."""
    return float(min(max(t, least), largest)) if t == t else float(least + largest) / 2


def _minimiser(a: Point, b: Point) -> float:
    """The minimiser of the cubic with the values and slopes of a and b; not a number if there is none."""
    (t0, f0, s0), (t1, f1, s1) = a.tolist(), b.tolist()
    d = s0 + s1 - 3 * (f1 - f0) / (t1 - t0)
    if (square := d * d - s0 * s1) < 0:
        return nan
    root = sqrt(square)
    below = s1 - s0 + 2 * root
    return t1 - (t1 - t0) * (s1 + root - d) / below if below else nan
