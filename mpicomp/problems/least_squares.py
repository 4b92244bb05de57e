"""Ridge regression; its constants are eigenvalues of the workers' Gram matrices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array, Indices
from mpicomp.base.blas import one_thread
from mpicomp.base.errors import DataError
from mpicomp.data import Dataset, Split, has_real_targets, rows_of
from mpicomp.data.cache import remember
from mpicomp.problems.constants import Constants
from mpicomp.problems.glm import RidgeProblem
from mpicomp.problems.linear import LinearModel
from mpicomp.problems.scalars import SQUARED_MARGIN

EXACT = 500  # the largest dimension in which Gram matrices are formed
LARGEST = 1e150  # targets; f, a mean of squares, has to be finite at its minimum too


@dataclass(frozen=True)
class LeastSquares(RidgeProblem):
    """f_i(x) = (1/2m_i) ||A_i x - b_i||^2 + lam/2 ||x||^2, b_i the labels -1, 1; give lam or cond.

    Of a pair (X, y), an .npz file or a CSV file, b is y as it is: real targets.  So it is of a LIBSVM file,
    unless that has two labels, which become -1 and 1.

    L and L_i are exact.  L_plus, L_pm, L_sample, L_sigma and f_star are exact up to d = 500; above, the first
    four are the upper bounds of ``bounds``, and f_star is not known.  mu = lam is a lower bound: the exact
    constant of strong convexity is larger by the least eigenvalue of the mean Gram matrix.
    """

    paper: ClassVar[str] = "none: ridge regression"

    phi = SQUARED_MARGIN
    real_targets = True

    def objective(self, i: int, n: int) -> LinearModel:
        model = super().objective(i, n)
        labels = isinstance(self.data, str) and not has_real_targets(self.data)
        if labels and (np.abs(model.y) == 1).all():
            return model
        return Residuals(model.X, model.y, model.phi, model.lam, model.rho)

    def constants(self, n: int) -> Constants:
        found, data = replace(super().constants(n), quadratic=True), self.dataset()
        if (largest := float(np.abs(data.y).max())) > LARGEST:
            raise DataError(
                f"{data.name} has targets as large as {largest:.3g}, whose squares exceed double precision. "
                "Scale them, to at most 1 say."
            )
        if data.X.shape[1] > EXACT:
            return found
        lam = self.weight(n)
        parts = ("least squares with variance, by QR", data.sha256, self.split, n, repr(lam))
        return replace(found, **remember(parts, lambda: _exact(data, self.split, n, lam)))


class Residuals(LinearModel):
    """f_i(x) = (1/2m) ||X x - y||^2 + lam/2 ||x||^2 for any real y; a margin needs y to be -1 or 1."""

    def part(self, rows: Indices) -> Residuals:
        return Residuals(self.X[rows], self.y[rows], self.phi, self.lam, self.rho)

    def _margins(self, x: Array) -> Array:
        """The residuals a_j'x - y_j in place of margins, shape (m,)."""
        return self.X @ x - self.y

    def _value(self, x: Array, margins: Array) -> float:
        squares = np.sum(margins * margins)
        return float(squares / (2 * len(self.y)) + self.lam * np.sum(self.rho.value(x)))

    def _grad(self, x: Array, margins: Array) -> Array:
        g = self.XT @ (margins / len(self.y))
        g += self.lam * self.rho.slope(x)
        return g


def _exact(data: Dataset, split: Split, n: int, lam: float) -> dict[str, float]:
    """L_plus, L_pm, L_sample, L_sigma and f_star from the Hessians H_i = G_i + lam I, G_i = A_i'A_i / m_i.

    A gradient difference is H_i v, where v = x - y.  So each squared constant is a largest eigenvalue::

        L_plus^2    of mean_i H_i^2
        L_pm^2      of mean_i (G_i - G)^2,  G = mean_i G_i
        L_sample^2  of mean_ij (a_j a_j' + lam I)^2 = mean_ij ||a_j||^2 a_j a_j' + 2 lam G + lam^2 I
        L_sigma^2   of mean_ij (a_j a_j' - G_i)^2 = mean_ij ||a_j||^2 a_j a_j' - mean_i G_i^2
    """
    with one_thread():
        weights = np.empty(len(data.y))  # weights[j]: of row j in G
        grams = []
        for i in range(n):
            rows = rows_of(i, n, data.y, split)
            A = data.X[rows]
            weights[rows] = 1 / (n * A.shape[0])
            grams.append((A.T @ A).toarray() / A.shape[0])
        G = np.mean(grams, axis=0)
        square = sum(g @ g for g in grams) / n
        spread = sum((g - G) @ (g - G) for g in grams) / n
        A = data.X.toarray()
        samples = (A.T * (weights * np.sum(A * A, axis=1))) @ A
        x = _minimum(A, weights, data.y, lam)
        f = np.sum(weights * (A @ x - data.y) ** 2) / 2 + lam / 2 * np.sum(x * x)
        return {
            "L_plus": float(np.sqrt(_top(square + 2 * lam * G) + lam * lam)),
            "L_pm": float(np.sqrt(_top(spread))),
            "L_sample": float(np.sqrt(_top(samples + 2 * lam * G) + lam * lam)),
            "L_sigma": float(np.sqrt(_top(samples - square))),
            "f_star": float(f),
        }


def _minimum(
    A: NDArray[np.float64], weights: NDArray[np.float64], b: NDArray[np.float64], lam: float
) -> NDArray[np.float64]:
    """The x that minimises sum_j weights_j (a_j'x - b_j)^2 + lam |x|^2; if there are many, one of them.

    Not of the Gram matrix, in which features of 1e-4 are lost beside features of 1e4; and features have one
    scale, for a direction counts as none if its singular value is lost beside the largest.
    """
    m, d = A.shape
    root = np.sqrt(weights)
    rows = np.vstack([root[:, None] * A, np.sqrt(lam) * np.eye(d)])
    scale = np.abs(rows).max(axis=0)
    scale[scale == 0] = 1
    R: Any = np.linalg.qr(np.column_stack([rows / scale, np.append(root * b, np.zeros(d))]), mode="r")
    x: NDArray[np.float64] = np.linalg.lstsq(R[:, :d], R[:, d], rcond=max(m, d) * np.finfo(float).eps)[0]
    return x / scale


def _top(H: NDArray[np.float64]) -> float:
    return max(0.0, float(np.linalg.eigvalsh(H)[-1]))
