"""L-BFGS (Liu, Nocedal 1989) with a matrix in place of the two loops, and a weak Wolfe line search.

The inverse Hessian H starts at s'z / z'z times the identity, of the newest pair, and takes the update of BFGS
for each of the last pairs, oldest first::

    H = (1 - r s z') H (1 - r z s') + r s s',   r = 1 / s'z

A search tries t = gamma first, or gamma / |g| without pairs.  t is too long if f has not fallen by 1e-3 of
what the slope at 0 promises, else too short if the slope is below 0.9 of that at 0.  The next t is the
minimiser of the cubic through the last two points, kept within the middle 80 % of the interval; or, while
nothing is too long, between 1.1 and 4 times the last growth.
"""

import numpy as np


def lbfgs(evaluate, x0, gamma, memory, rounds):
    """The x after each of ``rounds`` evaluations.

    ``evaluate(x, y)`` is (grad f(y), f(y) - f(x)).
    """
    x = np.array(x0)
    g, _ = evaluate(x, x)
    pairs, seen = [], [x, x]
    while len(seen) <= rounds:
        p = -inverse(pairs[-memory:], x.size) @ g
        t = gamma if pairs else gamma / np.sqrt(g @ g)
        found = search(evaluate, x, p, g @ p, t, seen, rounds)
        if found is None:
            if len(seen) > rounds:
                break
            pairs = []
            continue
        y, there = found
        s, z = y - x, there - g
        if s @ z > np.finfo(float).eps * (z @ z):
            pairs.append((s, z))
        x, g = y, there
        seen.append(x)
    return seen


def inverse(pairs, d):
    """H, shape (d, d)."""
    one = np.eye(d)
    if not pairs:
        return one
    s, z = pairs[-1]
    H = (s @ z) / (z @ z) * one
    for s, z in pairs:
        r = 1 / (s @ z)
        H = (one - r * np.outer(s, z)) @ H @ (one - r * np.outer(z, s)) + r * np.outer(s, s)
    return H


def search(evaluate, x, p, slope, t, seen, rounds):
    """The point that fits and its gradient, or None after 20 trials or the last round.

    A trial that does not fit adds x to ``seen``.
    """
    low, high = (0.0, 0.0, slope), None
    for _ in range(20):
        y = x + t * p
        g, change = evaluate(x, y)
        here = (t, change, g @ p)
        if change > 1e-3 * t * slope:
            high = here
        elif g @ p < 0.9 * slope:
            before, low = low, here
        else:
            return y, g
        seen.append(x)
        if len(seen) > rounds:
            return None
        if high is None:
            least, largest = t + 1.1 * (t - before[0]), t + 4 * (t - before[0])
            best = minimiser(before, low)
        else:
            width = high[0] - low[0]
            least, largest = low[0] + 0.1 * width, high[0] - 0.1 * width
            best = minimiser(low, high)
        t = np.clip(best, least, largest) if np.isfinite(best) else (least + largest) / 2
    return None


def minimiser(a, b):
    """The minimiser of the cubic that has the values and slopes of a and b; nan if there is none.

    In u = (t - t_a) / w it is f_a + w s_a u + q u^2 + c u^3.
    """
    w = b[0] - a[0]
    rise, start, end = b[1] - a[1], w * a[2], w * b[2]
    q, c = 3 * rise - 2 * start - end, start + end - 2 * rise
    square = q * q - 3 * c * start
    if square < 0:
        return np.nan
    return a[0] + w * (-start / (q + np.sqrt(square)))
