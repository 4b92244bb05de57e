"""Conjugate gradients (Hestenes, Stiefel 1952) for A x = b::

r = b - A x;   p = r
x = x + a p,   a = r'r / p'A p
r = r - a A p;   p = r + (r'r / its value before) p
"""

import numpy as np


def cg(multiply, residual, x0, steps):
    """The iterates x^0, .., x^steps; ``multiply`` is A, ``residual`` is b - A x^0."""
    x, r = np.array(x0), np.array(residual)
    p, square = r, r @ r
    iterates = [x]
    for _ in range(steps):
        Ap = multiply(p)
        a = square / (p @ Ap)
        x, r = x + a * p, r - a * Ap
        p, square = r + (r @ r) / square * p, r @ r
        iterates.append(x)
    return iterates
