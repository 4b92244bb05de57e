"""The largest variance of dithering, relative to |x|^2, and the vectors that attain it, with proofs.

Rounding a >= 0 to one of the two nearest integers, without bias, has the variance

    g(a) = (a - floor a)(ceil a - a) = 1/4 - (distance of a to Z + 1/2)^2.

As a function of u = a^2, g is sqrt(u) - u for u <= 1/4, and at most 1/4 everywhere.  So its least concave
majorant is sqrt(u) - u up to u = 1/4, and constant beyond.  Because the majorant is concave, the worst case
for the sum over j has equal |x_j|.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from mpicomp.base.arrays import Array


def of_sphere(d: int, s: int) -> float:
    """omega for steps of |x|_2 / s: (d/4 - off^2)/s^2, off = min over h in (Z + 1/2)^d of | |h| - s |; tight.

    Proof.  a = s |x_j| / |x|_2 lies on the sphere of radius s, and sum_j g(a_j) = d/4 - min_h |a - h|^2 by
    the form of g above.  The point of the sphere nearest to h is s h/|h|, at the distance | |h| - s |.  The
    maximum is attained there, at the nearest h.

    4 |h|^2 is a sum of d odd squares, d + 8 T with T a sum of d triangular numbers: for d >= 3 every T >= 0
    (Gauss).  For s <= sqrt(d)/2 the nearest has T = 0, which gives sqrt(d)/s - 1, at equal |x_j|.  For larger
    s, off is 0 if d = 4 s^2 modulo 8, and for d >= 3 hardly above 1/(2 s).
    """
    if d > 2:
        T = max(0, (4 * s**2 - d) // 8)
        off = min(abs(sqrt(d + 8 * t) / 2 - s) for t in (T, T + 1))
    elif d == 2:
        h = np.arange(s + 1) + 0.5  # one coordinate; the other one is one of the two nearest to the circle
        other = np.floor(np.sqrt(np.maximum(s**2 - h**2, 0)) - 0.5) + np.array([[0.5], [1.5]])
        off = float(np.abs(np.hypot(h, other) - s).min())
    else:
        off = 0.5
    return (d / 4 - off**2) / s**2


def of_cube(d: int, step: float) -> float:
    """omega for steps of ``step`` max |x_j|, 1/step an integer: (sqrt(1 + (d - 1) step^2) - 1)/2, tight.

    Proof.  Let max |x_j| = 1, which is a level.  The other d - 1 coordinates have the variance
    step^2 g(|x_j|/step).  By the majorant the ratio r of variance to |x|^2 is largest if all of them are some
    t <= step/2: r = (d - 1)(step t - t^2) / (1 + (d - 1) t^2).  The maximum over t is at
    t = step/(2 (1 + r)), where 4 r (1 + r) = (d - 1) step^2.
    """
    return (sqrt(1 + (d - 1) * step**2) - 1) / 2


def of_blocks(costs: Array, h: Array, starts: list[int]) -> Array:
    """Bounds for steps h_j |x|_2 and costs c_j: min over m >= 0 of m + sum_j c_j^2 h_j^2 / (4 (c_j + m)).

    They bound sum_j c_j Var C(x)_j / |x|^2, one bound for each block.  ``costs`` and ``h`` have the shape
    (d,); ``starts`` has the first index of each block.  A bound is tight if sum_j h_j^2 >= 4, summed
    over c_j > 0; otherwise m = 0, and the bound is sum_j c_j h_j^2 / 4.

    Proof.  Let |x|_2 = 1, and t = |x_j|.  By the majorant c h^2 g(t/h) - m t^2 is at most the maximum of
    c (h t - t^2) - m t^2, at t = c h / (2 (c + m)) <= h/2, which is c^2 h^2 / (4 (c + m)).  Sum over j, with
    sum t^2 = 1.  At the minimising m > 0 these t satisfy sum t^2 = 1, so they attain the bound.
    """

    def total(terms: Array) -> Array:
        return np.add.reduceat(terms, starts)

    sizes = np.diff([*starts, costs.size])
    low, high = np.zeros(len(starts)), np.sqrt(total((costs * h) ** 2)) / 2  # of m, because t <= c h / (2 m)
    for _ in range(60):  # bisection; every m gives a bound
        m = (low + high) / 2
        falls = total((costs * h / _positive(costs + np.repeat(m, sizes))) ** 2) > 4
        low, high = np.where(falls, m, low), np.where(falls, high, m)
    return high + total((costs * h) ** 2 / _positive(costs + np.repeat(high, sizes))) / 4


def _positive(x: Array) -> Array:
    """x with 1 in place of 0, as a denominator: the numerator is 0 there."""
    return np.where(x > 0, x, 1.0)
