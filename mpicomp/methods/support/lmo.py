"""Steps of length 1 in a norm, along which a linear function falls fastest: linear minimisation oracles.

The least ⟨g, s⟩ over all s with ‖s‖ ≤ 1 is -‖g‖_*, the dual norm, and is taken at s = -D(g):

norm        ‖s‖                                         D(g)            ‖g‖_*
"l2"        the Euclidean norm |s|                      g/|g|           |g|
"linf"      the largest magnitude                       the signs of g  the sum of magnitudes
"spectral"  the largest of the singular values of       U V' of each    the sum of the singular values of
            matrices, and of the magnitudes elsewhere   matrix U Σ V',  matrices, and of the magnitudes
                                                        else the signs  elsewhere

A part with two axes or more is a matrix, its first axis by all others.  D(0) = 0.

U V' is the polar factor of G.  "svd" computes it by the decomposition.  "newton-schulz" comes near it, as in
Muon: 5 times X = 3.4445 X + (-4.7750 A + 2.0315 A²) X with A = X X', from X = G/|G|_F, or from the transpose
if G has more rows than columns.  That maps σ/|G|_F, for each singular value σ of G, 5 times by
3.4445 σ - 4.7750 σ³ + 2.0315 σ⁵: to between 0.67 and 1.21 for σ ≥ 0.0015 |G|_F, and to at most 485 σ/|G|_F
for smaller ones.  So D(g) is not the minimiser, and its length is up to 1.21.  Muon adds 1e-7 to |G|_F; here
nothing is added, so that the size of G does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.blas import one_thread
from mpicomp.base.errors import DivergedError
from mpicomp.base.parts import Parts
from mpicomp.kernels.lowrank import scaled

NORMS = ("l2", "linf", "spectral")
POLARS = ("svd", "newton-schulz")

_QUINTIC = 3.4445, -4.7750, 2.0315  # of σ, σ³ and σ⁵; steep at 0, and so not 1 at 1


def steepest(norm: str, g: Array, parts: Parts | None, polar: str = "svd") -> Array:
    """D(g), shape (d,), in double precision; "spectral" alone reads the ``parts`` of g, and ``polar``.

    Raises ``DivergedError`` if the norm that "l2" takes, or an entry of a matrix, is not finite.  Elsewhere
    the sign of NaN is NaN.
    """
    if norm == "l2":
        return kernels.promoted(g) / (kernels.norm(g) or 1.0)
    D: Array = np.sign(kernels.promoted(g))
    if norm == "spectral":
        for part, where in parts or ():
            if part.is_matrix:
                D[where] = _polar(g[where], part.shape[0], polar)
    return D


def squared_ratio(norm: str, d: int, parts: Parts | None) -> int:
    """The least ρ² with ‖y‖_* ≤ ρ |y| for all y in R^d; then |s| ≤ ρ ‖s‖ for all s."""
    if norm == "spectral" and parts is not None:
        return sum(
            min(part.shape[0], part.size // part.shape[0]) if part.is_matrix else part.size
            for part, _ in parts
        )
    return 1 if norm == "l2" else d


def _polar(g: Array, rows: int, how: str) -> Array:
    """U V' of the matrix of that many ``rows`` in g, shape (rows columns,), or an approximation.

    It is computed by numpy, on the host and by one thread: ranks with the same numpy on the same kind of
    processor have the same bits.
    """
    G = kernels.to_host(g).astype(np.float64).reshape(rows, -1)
    if not np.isfinite(G).all():
        raise DivergedError("the estimate of the gradient is not finite.")
    with one_thread():
        D = _decomposed(G) if how == "svd" else _iterated(G)
    polar: Array = kernels.to_same_place(g, D.ravel())
    return polar


def _decomposed(G: Array) -> Array:
    """U V'; singular values that are only rounding error count as 0, and their vectors are left out."""
    U, sizes, V = np.linalg.svd(scaled(G), full_matrices=False)  # so that no size overflows
    kept = sizes > max(G.shape) * np.finfo(np.float64).eps * sizes[0]
    D: Array = U[:, kept] @ V[kept]
    return D


def _iterated(G: Array) -> Array:
    """G after 5 iterations of Newton and Schulz, in single precision: their own errors are far larger."""
    S = scaled(G)  # so that squares neither overflow nor underflow
    X: Any = (S / (np.linalg.norm(S) or 1.0)).astype(np.float32)
    if turned := X.shape[0] > X.shape[1]:  # so that A is the smaller of X X' and X' X
        X = X.T
    a, b, c = _QUINTIC
    for _ in range(5):
        A = X @ X.T
        X = a * X + (b * A + c * (A @ A)) @ X
    D: Array = X.T if turned else X
    return D
