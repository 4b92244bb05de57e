"""Sums and norms, the same to the last bit on every backend.

The order of a sum is a tree: zeros fill the vector up to a multiple of 1024; in each block of 1024, lane j
takes lane j + w/2 for w = 1024, 512, .., 2; the blocks' sums are summed in the same way until one is
left.  All of it is float64.
"""

from __future__ import annotations

from math import frexp, inf

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.errors import MessageError

BLOCK = 1024


def tree_sum(x: Array) -> float:
    """The sum of x, whose entries are not negative."""
    while True:
        # Zeros above the next power of two change no such sum, so a short vector needs none of them.
        width = min(BLOCK, 1 << max(x.size - 1, 0).bit_length())
        rows = np.zeros((max(1, -(-x.size // width)), width))
        rows.ravel()[: x.size] = x
        while width > 1:
            width //= 2
            rows = rows[:, :width] + rows[:, width:]
        x = rows.ravel()
        if x.size == 1:
            return float(x[0])


def largest(x: Array) -> float:
    """max |x_j|; not finite if an entry is not."""
    return float(np.max(np.abs(x), initial=0.0))


def norm(x: Array, p: str) -> float:
    """The 2-norm or max-norm of x; not finite if an entry is not, or if it is beyond double precision."""
    top = largest(x)
    if p == "inf" or top == 0.0 or not top < inf:
        return top
    e = square_exponent(top)
    root = np.sqrt(tree_sum(np.square(np.ldexp(x.astype(np.float64), -e))))
    with np.errstate(over="ignore"):
        return float(np.ldexp(root, e))


def mean_magnitude(x: Array) -> float:
    """|x|_1 / d; not finite if an entry is not."""
    top = largest(x)
    if not top < inf:
        return top
    e = sum_exponent(top)
    return float(np.ldexp(tree_sum(np.ldexp(np.abs(x.astype(np.float64)), -e)) / x.size, e))


def no_norm(value: float) -> MessageError:
    """The error of a message at whose head is no norm."""
    return MessageError(f"a norm of {value} at the head of a message; it must be finite and not negative.")


def square_exponent(top: float) -> int:
    """The e such that x / 2^e is squared: 0 unless squares of x could overflow or underflow."""
    return 0 if top == 0.0 or 2.0**-400 <= top < 2.0**400 else frexp(top)[1]


def sum_exponent(top: float) -> int:
    """The e such that x / 2^e is summed: 0 unless the sum could overflow."""
    return 0 if top < 2.0**900 else frexp(top)[1]
