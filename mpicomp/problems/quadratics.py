"""Random quadratics; one number sets how much the workers' f_i differ.  The test problem of PermK."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp.base.arrays import Array
from mpicomp.base.blas import one_thread
from mpicomp.base.checks import as_seed, check_at_least, check_nonnegative, check_positive
from mpicomp.base.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.problems.base import Problem
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class Quadratics(Problem):
    """f_i(x) = x'A_i x / 2 - b_i'x, where A_i is a random multiple of a tridiagonal T, plus c I.

    ===========  ==============================================================================
    T            tridiag(-1, 2, -1) of order d, eigenvalues 2 - 2 cos(pi j / (d+1))
    nu_i, beta_i 1 + noise xi_i and noise zeta_i, xi_i and zeta_i standard normal, drawn from ``seed``
    A_i          (nu_i/4) T + c I, where c is such that lambda_min(mean A_i) = lam
    b_i          (nu_i/4) (-1 + beta_i, 0, .., 0)
    x0           sqrt(d) e_1
    ===========  ==============================================================================

    noise = 0 makes all f_i equal; an f_i may be nonconvex, f never is.  The A_i commute, so the
    smoothness constants are exact, in closed form; f_star takes one banded solve.

    Source: Szlendak, Tyurin, Richtarik, "Permutation compressors for provably faster distributed
    nonconvex optimization", ICLR 2022, experiments on quadratics; the generator is written from
    memory.

    noise  the standard deviation of nu_i and beta_i, 0 or above
    lam    the smallest eigenvalue of mean A_i, above 0
    """

    paper: ClassVar[str] = "Szlendak, Tyurin, Richtárik, Permutation compressors (ICLR 2022), experiments"

    d: int = 1000
    noise: float = 0.1
    lam: float = 1e-6
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least("d", self.d, 2, "the dimension is at least 2")
        as_seed(self.seed)
        check_nonnegative("noise", self.noise, "it")
        check_positive("lam", self.lam, "the smallest eigenvalue")

    def dimension(self) -> int:
        return self.d

    def x0(self) -> Array:
        x = np.zeros(self.d)
        x[0] = np.sqrt(self.d)
        return x

    def objective(self, i: int, n: int) -> Tridiagonal:
        q, b = self._coefficients(n)
        return Tridiagonal(float(q[i]), _shift(self, n), float(b[i]), self.d)

    @np.errstate(over="ignore", invalid="ignore")  # overflow is refused below, by a ``ConfigError``
    def constants(self, n: int) -> Constants:
        # An eigenvector of T with eigenvalue t is an eigenvector of A_i with eigenvalue q_i t + c.  Each
        # constant is the maximum of a convex function of t, hence attained at an extreme eigenvalue of T.
        q, b = self._coefficients(n)
        t, c = self._extremes(), _shift(self, n)
        eigenvalues = np.outer(q, t) + c
        sizes = np.abs(eigenvalues)
        band = np.zeros((2, self.d))  # the mean matrix: superdiagonal, diagonal
        band[0, 1:] = -q.mean()
        band[1] = 2 * q.mean() + c
        b_mean = np.zeros(self.d)
        b_mean[0] = b.mean()
        try:
            x_star = scipy.linalg.solveh_banded(band, b_mean)
        except (np.linalg.LinAlgError, ValueError):
            raise ConfigError(
                f"lam = {self.lam} is lost in rounding beside eigenvalues of {np.abs(eigenvalues).max():.3g} "
                f"or these overflow (noise = {self.noise}): the minimum cannot be computed. Take a larger "
                "lam, or less noise."
            ) from None
        return Constants(
            L=float(np.abs(q.mean() * t + c).max()),
            L_i=tuple(sizes.max(axis=1).tolist()),
            L_plus=float(np.sqrt((sizes**2).mean(axis=0).max())),
            L_pm=float(q.std() * t[1]),
            mu=self.lam,
            convex=bool(eigenvalues.min() >= 0),
            quadratic=True,
            f_star=float(-b_mean[0] * x_star[0] / 2),
            diagonals=partial(self.diagonals, n),
        )

    def _coefficients(self, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """q_i = nu_i / 4 and the first entry of b_i, each of shape (n,)."""
        if n < 1:
            raise ConfigError(f"n = {n}: there is at least 1 worker.")
        return _coefficients(self.noise, self.seed, n)

    def _extremes(self) -> NDArray[np.float64]:
        """The least and the greatest eigenvalue of T, shape (2,)."""
        # 4 sin(s/2)^2 in place of 2 - 2 cos(s), which at d = 10^6 has no correct digit left.
        return 4 * np.sin(np.pi * np.array([1, self.d]) / (2 * (self.d + 1))) ** 2


# Cached, because every A_i needs all coefficients for c: n workers in one process would take n^2 of them.
@lru_cache(maxsize=4)
def _shift(problem: Quadratics, n: int) -> float:
    """The multiple c of I in each A_i."""
    q, _ = problem._coefficients(n)
    return float(problem.lam - (q.mean() * problem._extremes()).min())


@lru_cache(maxsize=4)
def _coefficients(noise: float, seed: int, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``Quadratics._coefficients``, read-only."""
    xi, zeta = _normals(seed, n).T
    q = (1 + noise * xi) / 4
    b = q * (-1 + noise * zeta)
    q.flags.writeable = b.flags.writeable = False
    return q, b


@lru_cache(maxsize=4)
def _normals(seed: int, n: int) -> NDArray[np.float64]:
    """(xi_i, zeta_i) for all workers, shape (n, 2)."""
    keys = (Key(seed=seed, round=0, worker=i, n=n) for i in range(n))
    draws = np.array([key.private("quadratics").normals(2) for key in keys])
    draws.flags.writeable = False
    return draws


@dataclass(frozen=True)
class Tridiagonal(Objective):
    """The f_i of ``Quadratics``: x'Ax/2 - b x_1 with A = q tridiag(-1, 2, -1) + c I, without a matrix."""

    q: float
    c: float
    b: float
    d: int

    def value(self, x: Array) -> float:
        return float(np.sum(x * self._times(x)) / 2 - self.b * x[0])

    def grad(self, x: Array) -> Array:
        g = self._times(x)
        g[0] -= self.b
        return g

    def smoothness_matrix(self) -> Array:
        """|A| = (A^2)^(1/2), which is A if A has no negative eigenvalue."""
        d = self.d
        A = (2 * self.q + self.c) * np.eye(d) - self.q * (np.eye(d, k=1) + np.eye(d, k=-1))
        with one_thread():
            values, V = scipy.linalg.eigh_tridiagonal(np.diagonal(A), np.diagonal(A, 1))
            return A if values[0] >= 0 else V * np.abs(values) @ V.T

    def _times(self, x: Array) -> Array:
        """A x, in a few passes over x."""
        out = x * (2 * self.q + self.c)
        scaled = x * self.q
        out[1:] -= scaled[:-1]
        out[:-1] -= scaled[1:]
        return out
