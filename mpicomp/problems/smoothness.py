"""Smoothness constants of linear models, f_i(x) = (1/m_i) sum_j phi(y_j a_j'x) + lam sum_k rho(x_k)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp.base.blas import one_thread
from mpicomp.base.errors import DataError
from mpicomp.data import Dataset, Split, rows_of
from mpicomp.data.cache import remember
from mpicomp.problems.constants import Constants

LEAST = 1e-70  # the largest feature at least: its fourth power is a normal number, with all digits
DENSE = 1000  # matrices up to this order are diagonalised; Lanczos finds the top eigenvalue of larger ones


@dataclass(frozen=True)
class Spectrum:
    """The largest eigenvalues from which smoothness constants follow, with G_i = X_i'X_i / m_i.

    workers   s_i of G_i
    mean      s of (1/n) sum_i G_i
    weighted  p of (1/n) sum_i s_i G_i
    samples   q of (1/n) sum_i (1/m_i) sum_j ||a_j||^2 a_j a_j'; equal to p if every row were a worker
    """

    workers: tuple[float, ...]
    mean: float
    weighted: float
    samples: float


@lru_cache(maxsize=8)
def spectrum(data: Dataset, split: Split, n: int) -> Spectrum:
    """The spectrum of a data set divided among n workers; computed once, then kept in the cache."""
    _check_features(data.name, data.X.data)
    saved = remember(("gram spectra", data.sha256, split, n), lambda: asdict(_spectrum(data, split, n)))
    return Spectrum(tuple(saved["workers"]), saved["mean"], saved["weighted"], saved["samples"])


def _spectrum(data: Dataset, split: Split, n: int) -> Spectrum:
    with one_thread():
        weights = np.empty(len(data.y))  # weights[j]: of row j in (1/n) sum_i G_i
        tops = np.empty(len(data.y))  # tops[j]: s_i of the worker that owns row j
        workers = []
        for i in range(n):
            rows = rows_of(i, n, data.y, split)
            X = data.X[rows]
            workers.append(top_eigenvalue(X) / X.shape[0])
            weights[rows] = 1 / (n * X.shape[0])
            tops[rows] = workers[-1]
        mean = top_eigenvalue(scale_rows(data.X, np.sqrt(weights)))
        weighted = top_eigenvalue(scale_rows(data.X, np.sqrt(weights * tops)))
        samples = top_eigenvalue(scale_rows(data.X, np.sqrt(weights * row_squares(data.X))))
        return Spectrum(tuple(workers), mean, weighted, samples)


def _check_features(name: str, features: NDArray[np.float64]) -> None:
    """Raise ``DataError`` if sums of fourth powers of the features of ``name`` may overflow or vanish."""
    largest = float(np.abs(features).max())
    if largest < LEAST:
        raise DataError(
            f"{name} has features of at most {largest:.3g}, for which smoothness constants are below double "
            "precision. Scale the features, to about 1 say."
        )
    if not largest < np.finfo(float).max ** 0.25 / features.size:
        raise DataError(
            f"{name} has features as large as {largest:.3g}, for which smoothness constants exceed "
            "double precision. Scale the features, to at most 1 say."
        )


def dense_spectrum(name: str, shards: Iterable[NDArray[np.float64]], n: int, p: int) -> Spectrum:
    """The spectrum of n dense shards A_i of the data ``name``, shapes (m_i, p), given in worker order."""
    with one_thread():
        workers = []
        sums = np.zeros((3, p, p))  # matrices whose largest eigenvalues are mean, weighted and samples
        for A in shards:
            _check_features(name, A)
            G = A.T @ A / len(A)
            workers.append(float(np.linalg.eigvalsh(G)[-1]))
            squares = (A.T * np.sum(A * A, axis=1)) @ A / len(A)
            sums += [G / n, workers[-1] * G / n, squares / n]
        return Spectrum(tuple(workers), *(float(np.linalg.eigvalsh(H)[-1]) for H in sums))


def row_squares(X: scipy.sparse.csr_array) -> np.ndarray:
    """||a_j||^2 of every row a_j of X, shape (m,)."""
    return np.asarray(X.multiply(X).sum(axis=1))


def scale_rows(X: scipy.sparse.csr_array, factors: np.ndarray) -> scipy.sparse.csr_array:
    """diag(factors) X."""
    values = X.data * np.repeat(factors, np.diff(X.indptr))
    return scipy.sparse.csr_array((values, X.indices, X.indptr), shape=X.shape)


def top_eigenvalue(X: scipy.sparse.csr_array) -> float:
    """The largest eigenvalue of X'X, computed from the smaller one of X'X and XX'."""
    if not X.data.any():  # which Lanczos refuses: its first vector would be 0
        return 0.0
    if X.shape[0] < X.shape[1]:
        X = X.T
    if X.shape[1] <= DENSE:
        return float(np.linalg.eigvalsh((X.T @ X).toarray())[-1])
    gram = scipy.sparse.linalg.LinearOperator(
        (X.shape[1],) * 2, matvec=lambda v: X.T @ (X @ v), dtype=np.float64
    )
    start = np.linspace(1, 2, X.shape[1])  # deterministic, and not symmetric: hardly orthogonal to the top
    return float(
        scipy.sparse.linalg.eigsh(gram, k=1, which="LA", v0=start, tol=0, return_eigenvectors=False)[0]
    )


def bounds(spectrum: Spectrum, c: float, r: float) -> Constants:
    """L, L_i, L_plus, L_pm, L_sample, L_sigma, where |phi''| <= c and the common penalty is r-smooth.

    Lemma.  Let -B_i <= Hess <= B_i for the data part of each f_i, with B_i = c G_i.  Then its smoothness
    constant is at most lambda_max(B_i), the mean's constant is at most lambda_max(mean B_i), and
    L_plus^2 <= lambda_max(mean_i lambda_max(B_i) B_i) = c^2 p.
    Proof.  A gradient difference is D_i = S v, where v = x - y and S is the Hessian's mean over [x, y], so
    that -B <= S <= B.  So S = B^(1/2) K B^(1/2) with ||K|| <= 1: ||S|| <= ||B||, and ||S v||^2 <= ||B|| v'Bv.

    The penalty adds one common vector u, ||u|| <= r ||v||, to all D_i.  It drops out of the variance, so
    L_pm^2 <= c^2 p.  And mean ||D_i + u||^2 <= mean ||D_i||^2 + 2 r ||v|| ||mean D_i|| + r^2 ||v||^2.

    L_sample is L_plus for the samples f_ij, with means over i and j.  Here B_ij = c a_j a_j' and
    lambda_max(B_ij) = c ||a_j||^2, so q takes the place of p.  The mean of the D_ij is the mean of the D_i,
    so the penalty's terms are unchanged.  It drops out of the variance of the D_ij: L_sigma^2 <= c^2 q.

    The best constants may be smaller than these bounds, L_pm in particular: its bound is that on L_plus but
    for the penalty, and does not decrease if the shards are alike.  So by this theory PermK gains next to
    nothing on these problems.
    """
    L_i = tuple(c * s + r for s in spectrum.workers)
    # Of a huge r, r * r is infinite, which ``Constants`` refuses; r**2 is an error of Python.
    L_plus = np.sqrt(c * c * spectrum.weighted + 2 * r * c * spectrum.mean + r * r)
    L_pm = c * np.sqrt(spectrum.weighted) if len(L_i) > 1 else 0.0  # one worker has no variance
    L_sample = np.sqrt(c * c * spectrum.samples + 2 * r * c * spectrum.mean + r * r)
    return Constants(
        L=c * spectrum.mean + r,
        L_i=L_i,
        L_plus=float(L_plus),
        L_pm=float(L_pm),
        L_sample=float(L_sample),
        L_sigma=float(c * np.sqrt(spectrum.samples)),
    )
