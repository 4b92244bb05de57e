"""Multinomial logistic regression on images, convex or with a nonconvex penalty."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array, Indices
from mpicomp.base.blas import one_thread_for_good
from mpicomp.base.checks import check_nonnegative
from mpicomp.base.errors import unknown
from mpicomp.base.parts import Part, Parts
from mpicomp.data.cache import remember
from mpicomp.problems.constants import Constants
from mpicomp.problems.dense import Classification, Labels, cross_entropy
from mpicomp.problems.objective import FiniteSum
from mpicomp.problems.scalars import BOUNDED, SQUARE, Scalar
from mpicomp.problems.smoothness import Spectrum, bounds, dense_spectrum

PENALTIES = {"ridge": SQUARE, "bounded": BOUNDED}


@dataclass(frozen=True)
class Softmax(Classification):
    """f_i(W) = mean_j [log sum_c exp(w_c'a_j) - w_{y_j}'a_j] + lam sum rho(W), x = W row by row.

    a_j is an image of p pixels with an entry 1 appended, so W has the shape (classes, p + 1); d = 7850 for
    MNIST.  rho(t) is t^2/2 ("ridge": convex, mu = lam) or t^2/(1 + t^2) ("bounded": nonconvex).

    The constants are those of ``smoothness.bounds`` with 1/2 for its c, and G_i = mean_j a_j a_j'.  Proof:
    the Hessian of log-sum-exp is diag(q) - qq', q being the softmax.  u'(diag(q) - qq')u is the variance of
    an entry of u drawn by q: at most (max u - min u)^2/4 <= |u|^2/2.  So, without the penalty,
    0 <= Hess f_i <= (1/2) I (x) G_i, which has the eigenvalues of G_i / 2.  For a single sample
    G_i = a_j a_j', so L_ij is max ||a_j||^2 / 2 plus the penalty's constant.  Its gradient, but for the
    penalty's, is (q - e) (x) a_j, e a unit vector, and |q - e|^2 <= 2.  So sigma^2 is 2 max ||a_j||^2.

    penalty  rho: "ridge" or "bounded"
    """

    paper: ClassVar[str] = (
        "none for ridge; bounded: Fatkhullin, Tyurin, Richtárik, EF21-SGDM (NeurIPS 2023), experiments"
    )

    lam: float = 0.0
    penalty: str = "ridge"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_nonnegative("lam", self.lam, "the weight of the penalty")
        if not isinstance(self.penalty, str) or self.penalty not in PENALTIES:
            raise unknown("penalty", str(self.penalty), PENALTIES)

    def dimension(self) -> int:
        images = self.images()
        return images.classes * (images.shape[1] + 1)

    def parts(self) -> Parts:
        """W, in which the last column is the bias."""
        images = self.images()
        return Parts((Part("W", (images.classes, images.shape[1] + 1)),))

    def objective(self, i: int, n: int) -> SoftmaxObjective:
        one_thread_for_good()
        A, labels = self._rows(i, n)
        return SoftmaxObjective(A, labels, self.images().classes, self.lam, PENALTIES[self.penalty])

    def constants(self, n: int) -> Constants:
        parts = ("gram spectra of images", self.fingerprint(), self.split, n)
        columns = self.images().shape[1] + 1
        shards = (self._rows(i, n)[0] for i in range(n))
        saved = remember(parts, lambda: asdict(dense_spectrum(self.name(), shards, n, columns)))
        spectrum = Spectrum(**{**saved, "workers": tuple(saved["workers"])})
        r = self.lam * PENALTIES[self.penalty].curvature
        convex = self.penalty == "ridge"
        return replace(
            bounds(spectrum, 0.5, r),
            mu=self.lam if convex else None,
            convex=convex,
            samples=max(self.shard_sizes(n)),
            L_ij=0.5 * self._largest_square(n) + r,
            sigma=sqrt(2 * self._largest_square(n)),
        )

    def _largest_square(self, n: int) -> float:
        """max ||a_j||^2 over all images, read shard by shard; it does not depend on n."""
        shards = (self._rows(i, n)[0] for i in range(n))
        parts = ("largest square of images", self.fingerprint())
        largest: float = remember(parts, lambda: max(float(np.sum(A * A, axis=1).max()) for A in shards))
        return largest

    def _rows(self, i: int, n: int) -> tuple[NDArray[np.float64], Labels]:
        """The a_j of worker i, images with an entry 1 appended, shape (m_i, p + 1), and the labels."""
        X, labels = self.shard(i, n)
        return np.hstack([X, np.ones((len(X), 1))]), labels


class SoftmaxObjective(FiniteSum):
    """The f_i of ``Softmax`` over rows a_j of A, shape (m, p + 1)."""

    def __init__(self, A: NDArray[np.float64], labels: Labels, classes: int, lam: float, rho: Scalar) -> None:
        self.A, self.labels, self.classes, self.lam, self.rho = A, labels, classes, lam, rho
        self.samples = len(labels)

    def part(self, rows: Indices) -> SoftmaxObjective:
        return SoftmaxObjective(self.A[rows], self.labels[rows], self.classes, self.lam, self.rho)

    def value(self, x: Array) -> float:
        return self._value(x, self._loss(x)[0])

    def grad(self, x: Array) -> Array:
        return self._grad(x, self._loss(x)[1])

    def value_and_grad(self, x: Array) -> tuple[float, Array]:
        loss, R = self._loss(x)
        return self._value(x, loss), self._grad(x, R)

    def _value(self, x: Array, loss: float) -> float:
        return loss + float(self.lam * np.sum(self.rho.value(x)))

    def _grad(self, x: Array, R: Array) -> Array:
        g = (R.T @ self.A).ravel()
        g += self.lam * self.rho.slope(x)
        return g

    def _loss(self, x: Array) -> tuple[float, Array]:
        return cross_entropy(self.A @ x.reshape(self.classes, -1).T, self.labels)
