"""Compare a gradient with differences of values."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import numpy as np

from mpicomp.base.errors import ConfigError
from mpicomp.problems.asking import NOISE, Asked, Point, length, unit

DIRECTIONS = 2  # random ones, beside that of the gradient
AGREE = 0.25  # differences agree if they differ by less than this part of what grad is off
CLOSE = 3  # times ε^(1/3): what a slope may be off, for values with kinks in single precision
NEARBY = 0.02  # the distance of the second point, in the scale of x
ROUGH = 0.1  # what a slope may be off where they do not


def check_slopes(f: Asked, at: Point, draw: np.random.Generator) -> None:
    """Check <grad(x), v> against central differences of value, for v along grad(x) and random directions.

    With the relative rounding ε of the precision in which f computes, 2.2e-16 or 1.2e-7, and the scale s of
    x: the first step is ε^(1/3) s, where the errors of a central difference, of order h² by its curve and
    ε/h by rounding, balance.  It may be off by 3 ε^(1/3) max(|<g, v>|, |g|/√d), where |g|/√d is the root
    mean square of <g, v> over all directions, and by 10 ε |f|/h besides.  If it is off by more, shorter and
    longer steps are tried, and the best one counts.

    Differences of a correct gradient that are all off have not converged: they differ from each other as much
    as from the gradient.  Then a slope may be off by a tenth.  If it is off by more, they cannot tell, and
    the error says so.

    At a kink, as networks have, differences agree on the mean of two slopes.  So an error counts only if
    there is one at another point nearby too, along the gradient there, or another random direction.
    """
    nearby = at.moved(NEARBY * at.scale * unit(draw, at.x.size))
    for along in ("the gradient that it gave", *["a random direction"] * DIRECTIONS):
        error = _slope_error(f, at, along, draw)
        if error is not None and _slope_error(f, nearby, along, draw) is not None:
            raise error


def _slope_error(f: Asked, at: Point, along: str, draw: np.random.Generator) -> ConfigError | None:
    """The error for <grad(x), v>, v in the direction that ``along`` names; None if a difference agrees."""
    g, epsilon = f.grad(at), f.epsilon(at)
    v = unit(draw, g.size)
    if "random" not in along and (norm := length(g)) > 0:
        v = g / norm
    root, usual = epsilon ** (1 / 3), length(g) / sqrt(g.size)
    tried = []
    for factor in (1.0, 0.1, 10.0, 0.01):
        if root * factor < sqrt(epsilon):  # so short that rounding is all there is
            continue
        h = root * factor * at.scale
        right, left = at.moved(h * v), at.moved(-h * v)
        up, down = f.value(right), f.value(left)
        # x ± h v are rounded to the precision of x, so it is the step taken that counts.
        step = right.x.astype(np.float64) - left.x
        slope, given = (up - down) / (2 * h), float(np.sum(g * step)) / (2 * h)
        off = abs(slope - given)
        rounding = NOISE * epsilon * max(abs(up), abs(down)) / h
        if off <= CLOSE * root * max(abs(given), usual) + rounding:
            return None
        tried.append((h, slope, given, off))
    tried.sort()
    # Of the two neighbours that agree best: their disagreement over the smaller error, and the shorter one.
    disagreement, (h, slope, given, _) = min(
        (abs(a[1] - b[1]) / min(a[3], b[3]), a) for a, b in pairwise(tried)
    )
    says = f"the slope along {along} is {given:.6g} by grad, and"
    if disagreement < AGREE:
        return f.broken(at, f"{says} {slope:.6g} by differences of value (step {h:.1e})")
    if min(off for *_, off in tried) <= ROUGH * max(abs(given), usual):
        return None
    slopes = ", ".join(f"{slope:.6g} (step {h:.1e})" for h, slope, _, _ in tried)
    return f.broken(
        at,
        f"{says} differences of value do not agree on one: {slopes}. Either value is not smooth, or its "
        f"scale is not that of x, {at.scale:.3g}",
    )
