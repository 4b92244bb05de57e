"""Products of a matrix with a thin one, and projections, compiled: it is read in the order in which it lies.

The sums are numpy's.  Along what lies contiguous it halves a vector, to multiples of 8, until at most 128
entries are left, and sums these in 8 lanes; across it, it adds one vector after the other.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mpicomp.base.arrays import Indices, Matrix, Reals
from mpicomp.kernels.compiled.jit import FLOATS, dot_in_8_lanes, float64, int64, kernel, read, void, write

_LEAF = 128


def times(A: Matrix, B: Matrix) -> Matrix:
    """A B, shape (m, r), for A of shape (m, k) and B of few columns, shape (k, r); A in either order."""
    m, (k, r) = len(A), B.shape
    columns = np.ascontiguousarray(B.T).ravel()
    if A.flags.c_contiguous:
        out = np.empty((m, r))
        _along(A.ravel(), columns, *_halves(k), out.reshape(-1))
        return out
    sums = np.zeros((r, m))
    _across(A.T.ravel(), columns, r, sums.reshape(-1))
    return np.ascontiguousarray(sums.T)


def add_outer(total: Matrix, P: Matrix, Q: Matrix, scale: float) -> None:
    """total += scale P Q', P Q' summed column after column; ``total`` in either order."""
    if not total.flags.c_contiguous:
        total, P, Q = total.T, Q, P
    rows, columns = np.ascontiguousarray(P).ravel(), np.ascontiguousarray(Q.T).ravel()
    _add_outer(total.reshape(-1), rows, columns, P.shape[1], scale)


def project_out(v: Reals, basis: Matrix) -> None:
    """v -= its projection on each row of ``basis``, shape (j, m), one after the other; v has shape (m,)."""
    _project_out(v, basis.reshape(-1), *_halves(v.size))


@lru_cache(64)
def _halves(n: int) -> tuple[Indices, Indices]:
    """The lengths of the leaves of a sum of n entries, and how many sums join after each leaf."""
    if n <= _LEAF:
        return np.array([n]), np.array([0])
    left, right = _halves(n // 16 * 8), _halves(n - n // 16 * 8)
    joins = np.concatenate([left[1], right[1]])
    joins[-1] += 1
    return np.concatenate([left[0], right[0]]), joins


@kernel(*(float64(read(x), int64, read(float64), int64, *[read(int64)] * 2, write(float64)) for x in FLOATS))
def _dot(a, i, b, j, lengths, joins, sums):
    """The inner product of entries of a from i on and b from j on; ``sums`` has room for one of each leaf."""
    top = 0
    for leaf in range(lengths.size):
        whole = lengths[leaf] - lengths[leaf] % 8
        total = dot_in_8_lanes(a, i, b, j, whole)
        for rest in range(whole, lengths[leaf]):
            total += a[i + rest] * b[j + rest]
        sums[top] = total
        for _ in range(joins[leaf]):
            top -= 1
            sums[top] += sums[top + 1]
        i, j, top = i + lengths[leaf], j + lengths[leaf], top + 1
    return sums[0]


@kernel(*(void(read(x), read(float64), read(int64), read(int64), write(float64)) for x in FLOATS))
def _along(A, B, lengths, joins, out):
    """The inner product of each row of A with each row of B."""
    k, sums = lengths.sum(), np.empty(lengths.size)
    r = B.size // k
    for i in range(A.size // k):
        for c in range(r):
            out[i * r + c] = _dot(A, i * k, B, c * k, lengths, joins, sums)


@kernel(void(write(float64), read(float64), read(int64), read(int64)))
def _project_out(v, basis, lengths, joins):
    """v less its projection on each row of ``basis``, one after the other."""
    sums = np.empty(lengths.size)
    for start in range(0, basis.size, v.size):
        p = basis[start : start + v.size]
        share = _dot(p, 0, v, 0, lengths, joins, sums)
        for j in range(v.size):
            v[j] -= share * p[j]


@kernel(*(void(read(x), read(float64), int64, write(float64)) for x in FLOATS))
def _across(A, B, r, sums):
    """Add to each of the r rows of ``sums`` the rows of A, each times an entry of the same row of B."""
    k, m = B.size // r, sums.size // r
    for i in range(k):
        row = A[i * m : (i + 1) * m]
        for c in range(r):
            b, total = B[c * k + i], sums[c * m : (c + 1) * m]
            for j in range(m):
                total[j] += b * row[j]


@kernel(*(void(write(x), read(float64), read(float64), int64, float64) for x in FLOATS))
def _add_outer(total, P, Q, r, scale):
    """P row by row, Q column by column."""
    k = Q.size // r
    product = np.empty(k)
    for i in range(total.size // k):
        row = total[i * k : (i + 1) * k]
        product[:] = 0.0
        for c in range(r):
            p, q = P[i * r + c], Q[c * k : (c + 1) * k]
            for j in range(k):
                product[j] += p * q[j]
        for j in range(k):
            row[j] += scale * product[j]
