"""The objective of a linear model: one worker's rows, a loss of the margin and a separable penalty."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp.base.arrays import Array, Indices
from mpicomp.problems.objective import FiniteSum
from mpicomp.problems.scalars import Scalar


class LinearModel(FiniteSum):
    """f_i(x) = (1/m) sum_j phi(y_j a_j'x) + lam sum_k rho(x_k), over rows a_j of X, shape (m, d).

    It uses only sparse products and ``np.sum``, and no BLAS.  The last bits of a BLAS product or norm may
    depend on the number of threads, and runs are compared by hashes of their iterates.
    """

    def __init__(
        self, X: scipy.sparse.csr_array, y: NDArray[np.float64], phi: Scalar, lam: float, rho: Scalar
    ) -> None:
        self.X, self.y, self.phi, self.lam, self.rho = X, y, phi, lam, rho
        self.samples = len(y)
        self.XT = X.T  # shares the arrays of X, read as CSC

    def part(self, rows: Indices) -> LinearModel:
        return LinearModel(self.X[rows], self.y[rows], self.phi, self.lam, self.rho)

    def value(self, x: Array) -> float:
        return self._value(x, self._margins(x))

    def grad(self, x: Array) -> Array:
        return self._grad(x, self._margins(x))

    def value_and_grad(self, x: Array) -> tuple[float, Array]:
        margins = self._margins(x)
        return self._value(x, margins), self._grad(x, margins)

    def _margins(self, x: Array) -> Array:
        """y_j a_j'x of each row, shape (m,)."""
        return self.y * (self.X @ x)

    def _value(self, x: Array, margins: Array) -> float:
        losses = self.phi.value(margins)
        return float(np.sum(losses) / len(self.y) + self.lam * np.sum(self.rho.value(x)))

    def _grad(self, x: Array, margins: Array) -> Array:
        g = self.XT @ (self.y * self.phi.slope(margins) / len(self.y))
        g += self.lam * self.rho.slope(x)
        return g

    def smoothness_matrix(self) -> Array:
        """(c/m) X'X + lam r I, with c and r bounds on |phi''| and |rho''|; a dense matrix."""
        L = (self.XT @ self.X).toarray() * (self.phi.curvature / len(self.y))
        L[np.diag_indices_from(L)] += self.lam * self.rho.curvature
        return L
