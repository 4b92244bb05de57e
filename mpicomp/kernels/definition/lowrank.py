"""Products of a matrix with a thin one, and projections, without BLAS.

BLAS shares a sum among its threads, so the last bits depend on how many there are.  Here a sum is numpy's
own along an axis, always the same.
"""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Matrix, Reals


def times(A: Matrix, B: Matrix) -> Matrix:
    """A B, shape (m, r), for A of shape (m, k) and B of few columns, shape (k, r)."""
    columns = [np.sum(A * b, axis=1) for b in B.T]
    return np.stack(columns, axis=1)


def outer(P: Matrix, Q: Matrix) -> Matrix:
    """P Q', shape (m, k), summed column after column; shapes (m, r) and (k, r)."""
    product = np.zeros_like(P, shape=(len(P), len(Q)))
    for p, q in zip(P.T, Q.T, strict=True):
        product += p[:, None] * q
    return product


def add_outer(total: Matrix, P: Matrix, Q: Matrix, scale: float) -> None:
    """total += scale P Q'; ``total`` has the shape (m, k)."""
    total += scale * outer(P, Q)


def project_out(v: Reals, basis: Matrix) -> None:
    """v -= its projection on each row of ``basis``, shape (j, m), one after the other; v has shape (m,)."""
    for p in basis:
        v -= np.sum(p * v) * p
