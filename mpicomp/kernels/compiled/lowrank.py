"""Products of a matrix with a thin one, compiled: the matrix is read once, in the order in which it lies.

The sums are numpy's.  Along what lies contiguous it halves a vector, to multiples of 8, until at most 128
entries are left, and sums these in 8 lanes; across it, it adds one vector after the other.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mpicomp.base.arrays import Indices, Matrix
from mpicomp.kernels.compiled.jit import FLOATS, float64, int64, kernel, read, void, write

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


@lru_cache(64)
def _halves(n: int) -> tuple[Indices, Indices]:
    """The lengths of the leaves of a sum of n entries, and how many sums join after each leaf."""
    if n <= _LEAF:
        return np.array([n]), np.array([0])
    left, right = _halves(n // 16 * 8), _halves(n - n // 16 * 8)
    joins = np.concatenate([left[1], right[1]])
    joins[-1] += 1
    return np.concatenate([left[0], right[0]]), joins


@kernel(*(float64(read(x), read(float64), write(float64)) for x in FLOATS))
def _leaf(a, b, lanes):
    """The inner product of at most 128 entries, in the given 8 lanes."""
    lanes[:] = 0.0
    whole = a.size - a.size % 8
    for j in range(0, whole, 8):
        for lane in range(8):
            lanes[lane] += a[j + lane] * b[j + lane]
    low, high = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]), (lanes[4] + lanes[5]) + (lanes[6] + lanes[7])
    total = low + high
    for j in range(whole, a.size):
        total += a[j] * b[j]
    return total


@kernel(*(void(read(x), read(float64), read(int64), read(int64), write(float64)) for x in FLOATS))
def _along(A, B, lengths, joins, out):
    """The inner product of each row of A with each row of B."""
    k = lengths.sum()
    r = B.size // k
    sums, lanes = np.empty(lengths.size), np.empty(8)
    for i in range(A.size // k):
        for c in range(r):
            row, column = A[i * k : (i + 1) * k], B[c * k : (c + 1) * k]
            start, top = 0, 0
            for leaf in range(lengths.size):
                stop = start + lengths[leaf]
                sums[top] = _leaf(row[start:stop], column[start:stop], lanes)
                for _ in range(joins[leaf]):
                    top -= 1
                    sums[top] += sums[top + 1]
                start, top = stop, top + 1
            out[i * r + c] = sums[0]


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
