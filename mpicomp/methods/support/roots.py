"""Square roots of smoothness matrices, and their message."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.blas import one_thread
from mpicomp.base.errors import ConfigError
from mpicomp.codecs.values import decode_values, encode_values


def roots(L: Array, d: int) -> tuple[Array, Array]:
    """L^{1/2} and its pseudo-inverse, for L symmetric and without negative eigenvalues.

    Both have shape (d, d).  Eigenvalues below the rounding error of the largest count as 0.  Raises
    ``ConfigError`` unless L is finite, of shape (d, d), symmetric and without negative eigenvalues.
    """
    if not isinstance(L, np.ndarray) or L.shape != (d, d) or not np.isfinite(L).all():
        raise ConfigError(f"smoothness_matrix returned {L!r}; expected finite numbers of shape {(d, d)}.")
    if np.abs(L - L.T).max() > 1e-10 * np.abs(L).max():
        raise ConfigError(f"smoothness_matrix returned {L!r}; expected a symmetric matrix.")
    root, inverse = np.zeros((d, d)), np.zeros((d, d))
    alive = np.flatnonzero(np.diagonal(L) > 0)  # the other rows are 0, and stay so to the bit
    with one_thread():
        values, V = np.linalg.eigh(L[np.ix_(alive, alive)])
        if values.min(initial=0.0) < -1e-10 * values.max(initial=0.0):
            raise ConfigError(
                f"a smoothness matrix has the eigenvalue {values[0]:.3g}; none may be negative."
            )
        kept = values > d * np.finfo(np.float64).eps * values.max(initial=0.0)
        sigma, V = np.sqrt(values[kept]), V[:, kept]
        root[np.ix_(alive, alive)] = V * sigma @ V.T
        inverse[np.ix_(alive, alive)] = V / sigma @ V.T
    return root, inverse


def encode_symmetric(M: Array) -> Bytes:
    """The message of a symmetric M: its lower triangle, row by row, in f8."""
    return encode_values(M[np.tril_indices(len(M))], "f8")


def decode_symmetric(buf: Bytes, d: int) -> Array:
    """The symmetric matrix in ``buf``, shape (d, d)."""
    M = np.empty((d, d))
    rows, columns = np.tril_indices(d)
    M[rows, columns] = M[columns, rows] = decode_values(buf, d * (d + 1) // 2, "f8")
    return M


def times(M: Array, v: Array) -> Array:
    """M v, computed without BLAS: its last bits may change with the number of threads."""
    return np.einsum("jl,l->j", M, v)
