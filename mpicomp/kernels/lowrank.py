"""Products with thin matrices, and orthonormal bases.

They do not use BLAS, because its sums depend on the number of threads.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from mpicomp.base.arrays import Matrix
from mpicomp.kernels import add_scaled, definition, native_floats, on_device, pieces_on_host
from mpicomp.kernels.definition.lowrank import outer

_NOTHING = 2.0**-46  # a column whose relative remainder is at most this is only rounding error


def times(A: Matrix, B: Matrix) -> Matrix:
    """A B, shape (m, r), for A of shape (m, k) and B of few columns, shape (k, r), in double precision."""
    product: Matrix = _pieces(A).times(A, B)
    return product


def add_outer(total: Matrix, P: Matrix, Q: Matrix, scale: float = 1.0) -> None:
    """total += scale P Q', for ``total`` of shape (m, k), P and Q of few columns, shapes (m, r) and (k, r).

    P and Q are in double precision, and the result is rounded to the type of ``total``.
    """
    if not on_device(total):
        _pieces(total).add_outer(total, P, Q, scale)
        return
    if not total.flags.c_contiguous:
        total, P, Q = total.T, Q, P
    add_scaled(total.reshape(-1), outer(P, Q).reshape(-1), scale)  # += would make subnormal float32 0


def scaled(A: Matrix) -> Matrix:
    """A divided by a power of two, so that its largest magnitude is at least 1/2 and below 1."""
    return np.ldexp(A, -np.frexp(np.max(np.abs(A)))[1])


def orthonormal(Y: Matrix) -> Matrix:
    """Orthonormalise the columns of Y, shape (m, r), in double precision, by Gram-Schmidt, each one twice.

    A column in the span of the columns before it becomes zero, so that the others are a basis of Y's range.
    """
    basis = np.zeros_like(Y, shape=Y.shape[::-1], order="C")  # its rows are contiguous
    pieces = _pieces(basis)
    for j, y in enumerate(Y.T):
        v = scaled(y)  # so that squares do not underflow
        before = np.sqrt(np.sum(v * v))
        for _ in range(2):  # twice is enough (Kahan, Parlett)
            pieces.project_out(v, basis[:j])
        left = np.sqrt(np.sum(v * v))
        if left > _NOTHING * before:
            basis[j] = v / left
    P: Matrix = basis.T.copy()
    return P


def unit_columns(R: Matrix, epsilon: float) -> Matrix:
    """Each column of R, shape (c, r), divided by its norm plus ``epsilon``."""
    exponent = np.frexp(np.max(np.abs(R)))[1]
    S = np.ldexp(R, -exponent)  # so that squares do not overflow
    return S / (np.sqrt(np.sum(S * S, axis=0)) + np.ldexp(epsilon, -exponent))


def _pieces(A: Matrix) -> ModuleType:
    """The functions for A: numpy's on a device, whose library it calls, and for what is not plain."""
    if on_device(A) or not native_floats(A) or not (A.flags.c_contiguous or A.flags.f_contiguous):
        return definition
    return pieces_on_host(A.size)
