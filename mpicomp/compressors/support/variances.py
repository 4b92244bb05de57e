"""The largest variance of dithering, relative to |x|^2: with what constants, and at which vectors.

Rounding a >= 0 to one of the two integers around it, without bias, has the variance

    g(a) = (a - floor a)(ceil a - a) = 1/4 - (distance of a to Z + 1/2)^2.

As a function of u = a^2 it is sqrt(u) - u up to u = 1/4 and nowhere above 1/4: its least concave majorant is
constant from there on.  So a bound that allows for equal |x_j| alone allows for all.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from mpicomp.compressors.base import Array


def of_sphere(d: int, s: int) -> float:
    """Steps of |x|_2 / s: (d/4 - off^2)/s^2, off the least | |h| - s | of an h in (Z + 1/2)^d; tight.

    Proof.  a = s |x_j| / |x|_2 lies on the sphere of radius s, and sum_j g(a_j) = d/4 - min_h |a - h|^2 by
    the form of g above.  The point of the sphere nearest to h is s h/|h|, at the distance | |h| - s |.  The
    maximum is attained there, at the nearest h.

    4 |h|^2 is a sum of d odd squares, d + 8 T with T a sum of d triangular numbers: for d >= 3 every T >= 0
    (Gauss).  The nearest is T = 0 up to s = sqrt(d)/2, which gives sqrt(d)/s - 1, at equal |x_j|.  Beyond,
    off is 0 where d = 4 s^2 modulo 8, and never much above 1/(2 s) for d >= 3.
    """
    if d > 2:
        T = max(0, (4 * s**2 - d) // 8)
        off = min(abs(sqrt(d + 8 * t) / 2 - s) for t in (T, T + 1))
    elif d == 2:
        h = np.arange(s + 1) + 0.5  # and the other coordinate is one of the two that are nearest
        other = np.floor(np.sqrt(np.maximum(s**2 - h**2, 0)) - 0.5) + np.array([[0.5], [1.5]])
        off = float(np.abs(np.hypot(h, other) - s).min())
    else:
        off = 0.5
    return (d / 4 - off**2) / s**2


def of_cube(d: int, step: float) -> float:
    """Steps of ``step`` times max |x_j|: (sqrt(1 + (d - 1) step^2) - 1)/2, tight.

    Proof.  Let max |x_j| = 1, which is a level.  The other d - 1 coordinates have the variance
    step^2 g(|x_j|/step), so that the ratio is, by the majorant, largest where all of them are some
    t <= step/2: r = (d - 1)(step t - t^2) / (1 + (d - 1) t^2).  At the maximum over t it is
    t = step/(2 (1 + r)), and 4 r (1 + r) = (d - 1) step^2.
    """
    return (sqrt(1 + (d - 1) * step**2) - 1) / 2


def of_blocks(costs: Array, h: Array, starts: list[int]) -> Array:
    """Steps h_j |x|_2 and costs c_j of errors: min over m >= 0 of m + sum_j c_j^2 h_j^2 / (4 (c_j + m)).

    One for each block.  ``costs`` and ``h`` have the shape (d,), and ``starts`` says where blocks begin.
    Tight where sum_j h_j^2 >= 4 over the c_j > 0; elsewhere m = 0, and it is the bound sum_j c_j h_j^2 / 4.

    Proof.  Let |x|_2 = 1, and t = |x_j|.  By the majorant c h^2 g(t/h) - m t^2 is at most the maximum of
    c (h t - t^2) - m t^2, at t = c h / (2 (c + m)) <= h/2, which is c^2 h^2 / (4 (c + m)).  Sum over j, where
    sum t^2 = 1.  At the least m these t have sum t^2 = 1, and attain it, or m = 0.
    """

    def total(terms: Array) -> Array:
        return np.add.reduceat(terms, starts)

    sizes = np.diff([*starts, costs.size])
    low, high = np.zeros(len(starts)), np.sqrt(total((costs * h) ** 2)) / 2  # of m, as t <= c h / (2 m)
    for _ in range(60):  # each halves the interval, and any m is a bound
        m = (low + high) / 2
        falls = total((costs * h / _positive(costs + np.repeat(m, sizes))) ** 2) > 4
        low, high = np.where(falls, m, low), np.where(falls, high, m)
    return high + total((costs * h) ** 2 / _positive(costs + np.repeat(high, sizes))) / 4


def _positive(x: Array) -> Array:
    """x, but 1 where it is 0: there the numerator is 0."""
    return np.where(x > 0, x, 1.0)
