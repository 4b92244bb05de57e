"""Compare a gradient with differences of values."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from typing import NamedTuple

import numpy as np

from mpicomp.base.errors import ConfigError
from mpicomp.problems.checked import NOISE, Checked, Point, length, unit

RANDOM = "a random direction"
DIRECTIONS = 2  # random ones, beside that of the gradient
AGREE = 0.25  # differences agree if they differ by less than this part of what grad is off
CLOSE = 3  # times ε^(1/3) is what a slope may be off: so much for values with kinks in single precision
NEARBY = 0.02  # the distance of the second point, in the scale of x
ROUGH = 0.1  # what a slope may be off where differences do not agree


class Difference(NamedTuple):
    """A central difference with the step h: how far it is off ``grad``'s slope, and what rounding may do."""

    h: float
    slope: float
    off: float
    rounding: float
    close: bool
    tells: bool  # whether the slope is more than rounding


def check_slopes(f: Checked, at: Point, draw: np.random.Generator) -> None:
    """Check <grad(x), v> against central differences of value, for v along grad(x) and random directions.

    With the relative rounding ε of the precision in which f computes, 2.2e-16 or 1.2e-7, and the scale s of
    x: the first step is ε^(1/3) s, where the errors of a central difference, of order h² by its curve and
    ε/h by rounding, balance.  It may be off by 3 ε^(1/3) max(|<g, v>|, |g|/√d), where |g|/√d is the root
    mean square of <g, v> over all directions, and by 10 ε |f|/h besides.  If it is off by more, shorter and
    longer steps are tried, and the best one counts of those that rounding does not drown.

    Differences of a correct gradient that are all off have not converged: they differ from each other as much
    as from the gradient.  Then a slope may be off by a tenth.  If it is off by more, they cannot tell, and
    the error says so.

    At a kink, as networks have, differences agree on the mean of two slopes.  So an error counts only if
    there is one at another point nearby too, along the gradient there, or another random direction.
    """
    nearby = at.moved(NEARBY * at.scale * unit(draw, at.x.size))
    for along in ("the gradient that it gave", *[RANDOM] * DIRECTIONS):
        error = _slope_error(f, at, along, draw)
        if error is not None and _slope_error(f, nearby, along, draw) is not None:
            raise error


def _slope_error(f: Checked, at: Point, along: str, draw: np.random.Generator) -> ConfigError | None:
    """The error for <grad(x), v>, v in the direction that ``along`` names; None if a difference agrees."""
    g, epsilon = f.grad(at), f.epsilon(at)
    v, norm = unit(draw, g.size), length(g)
    if along != RANDOM and norm > 0:
        v = g / norm
    elif along != RANDOM:
        along = RANDOM
    root, usual = epsilon ** (1 / 3), norm / sqrt(g.size)
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
        close = off <= CLOSE * root * max(abs(given), usual) + rounding
        tells = rounding <= ROUGH * max(abs(given), abs(slope), usual)
        if close and tells:
            return None
        tried.append(Difference(h, slope, off, rounding, close, tells))
    telling = [one for one in tried if one.tells]
    if not telling and any(one.close for one in tried):  # as where the gradient is 0
        return None
    tried = telling or tried
    says = f"the slope along {along} is {given:.6g} by grad, and"
    if (converged := _converged(tried)) is not None:
        return f.broken(at, f"{says} {converged.slope:.6g} by differences of value (step {converged.h:.1e})")
    if min(one.off for one in tried) <= ROUGH * max(abs(given), usual):
        return None
    slopes = ", ".join(f"{one.slope:.6g} (step {one.h:.1e})" for one in sorted(tried))
    return f.broken(
        at,
        f"{says} differences of value do not agree on one: {slopes}. Either value is not smooth, or its "
        f"scale is not that of x, {at.scale:.3g}",
    )


def _converged(tried: list[Difference]) -> Difference | None:
    """The difference that the next longer one agrees with, of the shortest that rounding spares; or None.

    Longer ones may agree by chance: steps over many waves of f have a slope of 0.
    """
    for one, longer in pairwise(sorted(tried)):
        enough = AGREE * min(one.off, longer.off)
        if one.rounding <= enough:
            return one if abs(one.slope - longer.slope) < enough else None
    return None
