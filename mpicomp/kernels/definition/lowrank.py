"""Products with thin matrices and orthonormal bases, without BLAS.

BLAS shares a sum among its threads, so the last bits depend on how many there are.  Here a sum is numpy's
own along an axis, always the same; with few columns it is memory that takes the time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating]

_NOTHING = 2.0**-46  # what a column has left of itself when only rounding is left of it


def times(A: Matrix, B: Matrix) -> Matrix:
    """A B, shape (m, r), for A of shape (m, k) and B of few columns, shape (k, r)."""
    columns = [np.sum(A * b, axis=1) for b in B.T]
    return np.stack(columns, axis=1)


def outer(P: Matrix, Q: Matrix) -> Matrix:
    """P Q', shape (m, k), for P and Q of few columns, shapes (m, r) and (k, r)."""
    total = np.zeros_like(P, shape=(len(P), len(Q)), dtype=np.float64)
    add_outer(total, P, Q)
    return total


def add_outer(total: Matrix, P: Matrix, Q: Matrix) -> None:
    """total += P Q', column after column; ``total`` has the shape (m, k)."""
    for p, q in zip(P.T, Q.T, strict=True):
        total += p[:, None] * q


def scaled(A: Matrix) -> Matrix:
    """A over a power of two that brings its largest entry to between 1/2 and 1."""
    return np.ldexp(A, -np.frexp(np.max(np.abs(A)))[1])


def orthonormal(Y: Matrix) -> Matrix:
    """The columns of Y, one after the other, made orthogonal to those before and of length 1.

    A column that those before it span gives a zero column, so that the others are a basis of Y's range.
    """
    P = np.zeros_like(Y)
    for j, y in enumerate(Y.T):
        v = scaled(y)  # so that squares do not underflow
        before = np.sqrt(np.sum(v * v))
        for _ in range(2):  # twice is enough (Kahan, Parlett)
            for p in P.T[:j]:
                v -= np.sum(p * v) * p
        left = np.sqrt(np.sum(v * v))
        if left > _NOTHING * before:
            P[:, j] = v / left
    return P
