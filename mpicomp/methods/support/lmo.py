"""Steps of length 1 in a norm, along which a linear function falls fastest: linear minimisation oracles.

The least ⟨g, s⟩ over all s with ‖s‖ ≤ 1 is -‖g‖_*, the dual norm, and is taken at s = -D(g):

norm        ‖s‖                                         D(g)            ‖g‖_*
"l2"        the Euclidean norm |s|                      g/|g|           |g|
"linf"      the largest magnitude                       the signs of g  the sum of magnitudes
"spectral"  the largest of the singular values of       U V' of each    the sum of the singular values of
            matrices, and of the magnitudes elsewhere   matrix U Σ V',  matrices, and of the magnitudes
                                                        else the signs  elsewhere

A part with two axes or more is a matrix, its first axis by all others.  D(0) = 0.
"""

from __future__ import annotations

import numpy as np

from mpicomp import kernels
from mpicomp.base.blas import one_thread
from mpicomp.base.errors import DivergedError
from mpicomp.base.parts import Part, Parts
from mpicomp.compressors.base import Array

NORMS = ("l2", "linf", "spectral")


def is_matrix(part: Part) -> bool:
    """Whether a part has two axes or more."""
    return len(part.shape) >= 2


def steepest(norm: str, g: Array, parts: Parts | None) -> Array:
    """D(g), shape (d,), in double precision; ``parts`` are those of g, which only "spectral" reads.

    Raises ``DivergedError`` if g has a norm or an entry that is not finite.
    """
    if norm == "l2":
        return _unit(g)
    D: Array = np.sign(kernels.promoted(g))
    if norm == "spectral":
        for part, where in parts or ():
            if is_matrix(part):
                D[where] = _polar(g[where], part.shape[0])
    return D


def squared_ratio(norm: str, d: int, parts: Parts | None) -> int:
    """The least ρ² with ‖y‖_* ≤ ρ |y| for all y in R^d; then |s| ≤ ρ ‖s‖ for all s."""
    if norm == "spectral" and parts is not None:
        return sum(
            min(part.shape[0], part.size // part.shape[0]) if is_matrix(part) else part.size
            for part, _ in parts
        )
    return 1 if norm == "l2" else d


def _unit(g: Array) -> Array:
    """g/|g|."""
    length = float(kernels.backend_for(g).encode_norms([g], "f8")[1][0])
    return kernels.promoted(g) / (length or 1.0)


def _polar(g: Array, rows: int) -> Array:
    """U V' of the matrix of that many ``rows`` in g, shape (rows columns,).

    Singular values that are only rounding error count as 0; their vectors are left out.  The decomposition is
    numpy's, on the host and by one thread: ranks with the same numpy on the same kind of processor have the
    same bits.
    """
    G = kernels.to_host(g).astype(np.float64).reshape(rows, -1)
    if not np.isfinite(G).all():
        raise DivergedError("the estimate of the gradient is not finite.")
    with one_thread():
        U, sizes, V = np.linalg.svd(G, full_matrices=False)
        kept = sizes > max(G.shape) * np.finfo(np.float64).eps * sizes[0]
        D = U[:, kept] @ V[kept]
    polar: Array = kernels.to_same_place(g, D.ravel())
    return polar
