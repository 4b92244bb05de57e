"""Classification with linear models; ``LinearModel`` defines f_i, and ``bounds`` gives the constants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite, sqrt
from typing import Any, ClassVar

from mpicomp.base.checks import check_nonnegative
from mpicomp.base.errors import ConfigError
from mpicomp.data import Dataset, Split, load_dataset, own_dataset, rows_of, shard_sizes
from mpicomp.problems.base import Problem
from mpicomp.problems.constants import Constants
from mpicomp.problems.held_data import hold_data
from mpicomp.problems.linear import LinearModel
from mpicomp.problems.scalars import BOUNDED, LOGISTIC, SIGMOID_SQUARED, SQUARE, Scalar
from mpicomp.problems.smoothness import bounds, row_squares, spectrum


@dataclass(frozen=True)
class LinearProblem(Problem):
    """Base of the linear models: f_i is a ``LinearModel`` with the loss ``phi`` and the penalty ``rho``.

    ``data`` is a name or path for ``load_dataset``, or a pair (X, y) of arrays for ``own_dataset``, which is
    copied.  On several ranks each gives the same pair; gradients use the rows of the rank's own workers only.
    ``lam`` is the penalty's weight, ``split`` a name for ``rows_of`` or an array of each row's worker.  f is
    the unweighted mean of the f_i, even if shards differ in size.
    """

    data: Any
    lam: float | None
    split: Split = "shuffled"

    phi: ClassVar[Scalar]
    rho: ClassVar[Scalar]
    convex: ClassVar[bool] = False
    real_targets: ClassVar[bool] = False  # whether y is taken as it is; see ``load_dataset``
    takes_cond: ClassVar[bool] = False  # whether a condition number may stand in the place of lam

    def __post_init__(self) -> None:
        if self.lam is not None or not self.takes_cond:
            check_nonnegative("lam", self.lam, "the weight of the penalty")
        hold_data(self, Dataset, lambda pair: own_dataset(pair, self.real_targets))

    def dataset(self) -> Dataset:
        return load_dataset(self.data, self.real_targets)

    def weight(self, n: int) -> float:
        """The weight lam of the penalty for n workers."""
        assert self.lam is not None
        return self.lam

    def dimension(self) -> int:
        return self.dataset().X.shape[1]

    def fingerprint(self) -> str:
        return self.dataset().sha256

    def shard_sizes(self, n: int) -> list[int]:
        return shard_sizes(n, self.dataset().y, self.split)

    def objective(self, i: int, n: int) -> LinearModel:
        data = self.dataset()
        rows = rows_of(i, n, data.y, self.split)
        return LinearModel(data.X[rows], data.y[rows], self.phi, self.weight(n), self.rho)

    def constants(self, n: int) -> Constants:
        lam, data = self.weight(n), self.dataset()
        c, r = self.phi.curvature, lam * self.rho.curvature
        found = bounds(spectrum(data, self.split, n), c, r)
        largest = float(row_squares(data.X).max())
        return replace(
            found,
            mu=lam if self.convex else None,
            convex=self.convex,
            samples=max(shard_sizes(n, data.y, self.split)),
            L_ij=c * largest + r,  # max_ij lambda_max(B_ij) of ``bounds``, and r
            sigma=sqrt(largest) * self.phi.steepest if isfinite(self.phi.steepest) else None,
            diagonals=partial(self.diagonals, n),
        )


@dataclass(frozen=True)
class RidgeProblem(LinearProblem):
    """A convex loss with the penalty lam/2 ||x||^2; f is strongly convex with mu >= lam.

    Give either ``lam``, or ``cond``, the condition number (L0 + lam)/lam, where L0 is the smoothness constant
    of the losses alone.  Raises ``ConfigError`` unless exactly one is given.  With ``cond`` each rank reads
    all rows once to compute L0; the cache keeps it.

    lam   the weight of the penalty, 0 or above; None if cond is given
    cond  the condition number (L0 + lam)/lam, above 1; None if lam is given
    """

    lam: float | None = None
    cond: float | None = None

    rho = SQUARE
    convex = True
    takes_cond = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.lam is None) == (self.cond is None):
            name = type(self).__name__
            raise ConfigError(
                f"{name} takes either lam, the penalty, or cond, the condition number: give one."
            )
        if self.cond is not None and not (isinstance(self.cond, int | float) and 1 < self.cond < inf):
            raise ConfigError(f"cond = {self.cond!r}: a condition number is a number, finite and above 1.")

    def weight(self, n: int) -> float:
        if self.cond is None:
            return super().weight(n)
        L0 = self.phi.curvature * spectrum(self.dataset(), self.split, n).mean
        return L0 / (self.cond - 1)


@dataclass(frozen=True)
class Logistic(RidgeProblem):
    """f_i(x) = mean_j log(1 + exp(-y_j a_j'x)) + lam/2 ||x||^2, y_j = -1 or 1.  Give lam, or cond."""

    paper: ClassVar[str] = "none: ridge-regularised logistic regression"

    phi = LOGISTIC


@dataclass(frozen=True)
class NonconvexLogistic(LinearProblem):
    """Logistic loss with a nonconvex penalty: log(1 + exp(-y a'x)) + lam sum_k x_k^2 / (1 + x_k^2).

    The test problem of EF21 (Richtarik, Sokolov, Fatkhullin 2021).
    """

    paper: ClassVar[str] = "Richtárik, Sokolov, Fatkhullin, EF21 (NeurIPS 2021), experiments"

    lam: float = 0.1

    phi = LOGISTIC
    rho = BOUNDED


@dataclass(frozen=True)
class NonconvexGLM(LinearProblem):
    """The nonconvex loss (1 - sigma(y a'x))^2 + lam/2 ||x||^2, sigma the logistic function.

    The test problem of MARINA (Gorbunov, Burlachenko, Li, Richtarik 2021).
    """

    paper: ClassVar[str] = "Gorbunov, Burlachenko, Li, Richtárik, MARINA (ICML 2021), experiments"

    lam: float = 0.0

    phi = SIGMOID_SQUARED
    rho = SQUARE
