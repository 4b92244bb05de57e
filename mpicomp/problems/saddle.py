"""A problem that starts at a strict saddle point: a method without noise never leaves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.checks import as_seed, check_at_least, check_nonnegative, check_positive
from mpicomp.base.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.problems.base import Problem
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class Saddle(Problem):
    """f(x) = x_1^2/2 - x_2^2/2 + x_2^4/4 + curvature/2 (x_3^2 + .. + x_d^2), and f_i(x) = f(x) + h_i'x.

    The start x0 = 0 is a strict saddle: the Hessian has the eigenvalue -1 along x_2.  At the two minima,
    x_2 = -1 and 1, f is -1/4.  The h_i come in pairs noise z_j, -noise z_j, where z_j is standard normal in
    R^d and drawn from ``seed``; the last of an odd number of workers has h_i = 0.  So the h_i cancel exactly:
    the mean gradient at x0 is exactly 0, although the paired workers' gradients are not.

    The constants hold where |x_2| <= 2: there the second derivative along x_2 is 3 x_2^2 - 1 <= 11; over R^d
    it is unbounded.  Iterates that leave this region show that the step is too large.

    Source: the two-dimensional example of the theory of perturbed gradient descent, from memory; the further
    dimensions and the h_i are this library's.

    curvature  the second derivative along x_3, .., x_d, above 0
    noise      the standard deviation of the entries of the h_i, 0 or above
    """

    paper: ClassVar[str] = "none: a strict saddle, as in Avdiukhin, Yaroslavtsev (NeurIPS 2021), as recalled"

    d: int = 10
    curvature: float = 1.0
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least("d", self.d, 2, "the dimension is at least 2")
        check_positive("curvature", self.curvature, "it")
        check_nonnegative("noise", self.noise, "it")
        as_seed(self.seed)

    def dimension(self) -> int:
        return self.d

    def objective(self, i: int, n: int) -> TiltedSaddle:
        pair, second = divmod(i, 2)
        if i == n - 1 and not second:
            return TiltedSaddle(self.curvature, np.zeros(self.d))
        z = Key(seed=self.seed, round=0, worker=pair, n=n).private("saddle").normals(self.d)
        return TiltedSaddle(self.curvature, self.noise * (-z if second else z))

    def constants(self, n: int) -> Constants:
        if n < 1:
            raise ConfigError(f"n = {n}: there is at least 1 worker.")
        L = max(11.0, self.curvature)
        return Constants(L=L, L_i=(L,) * n, L_plus=L, L_pm=0.0, f_star=-0.25, convex=False)


@dataclass(frozen=True)
class TiltedSaddle(Objective):
    """The f_i of ``Saddle``: f plus the linear term h'x."""

    curvature: float
    h: Array

    def value(self, x: Array) -> float:
        u, v = x[0] ** 2, x[1] ** 2
        rest = self.curvature * np.sum(x[2:] ** 2)
        return float((u - v + v * v / 2 + rest) / 2 + np.sum(self.h * x))

    def grad(self, x: Array) -> Array:
        g = self.curvature * x
        g[0] = x[0]
        g[1] = x[1] ** 3 - x[1]
        g += self.h
        return g
