"""What a problem is: min over x in R^d of f(x) = (1/n) sum_i f_i(x), worker i owning f_i."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicomp.errors import ConfigError

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Constants:
    """The smoothness constants that step sizes are made of.  ``None`` means not known.

    =========  ============================================================================
    L          ||grad f(x) - grad f(y)|| <= L ||x - y||
    L_i        the same for each f_i; ``L_max`` and ``L_tilde`` (root mean square) follow
    L_plus     mean_i ||D_i||^2 <= L_plus^2 ||x-y||^2,  D_i = grad f_i(x) - grad f_i(y)
    L_pm       mean_i ||D_i||^2 - ||mean_i D_i||^2 <= L_pm^2 ||x-y||^2   (Hessian variance)
    mu         strong convexity of f (0 if merely convex, None if f is not convex)
    f_star     min f
    =========  ============================================================================
    """

    L: float
    L_i: tuple[float, ...]
    L_plus: float
    L_pm: float
    mu: float | None = None
    f_star: float | None = None

    @property
    def L_max(self) -> float:
        return max(self.L_i)

    @property
    def L_tilde(self) -> float:
        return float(np.sqrt(np.mean(np.square(self.L_i))))


class Objective(ABC):
    """One worker's f_i, holding that worker's shard and nothing else."""

    @abstractmethod
    def value(self, x: Array) -> float:
        """f_i(x)."""

    @abstractmethod
    def grad(self, x: Array) -> Array:
        """The gradient of f_i at x, an array of floats of shape (d,)."""


class Problem(ABC):
    """A frozen dataclass whose fields are its configuration; ``eval(repr(p)) == p``."""

    @abstractmethod
    def dimension(self) -> int:
        """d."""

    @abstractmethod
    def objective(self, i: int, n: int) -> Objective:
        """f_i of worker i out of n.  Reads that worker's rows only."""

    def fingerprint(self) -> str:
        """What names the data behind f, such as a hash; a run is not resumed on other data."""
        return ""

    def x0(self) -> Array:
        """Where every method starts: shape (d,); the server's is taken."""
        return np.zeros(self.dimension())

    def constants(self, n: int) -> Constants:
        """The constants for n workers.  Raises ``ConfigError`` if the problem does not know them."""
        raise ConfigError(
            f"{type(self).__name__} gives no constants, so a theory step size cannot be computed. "
            "Give gamma as a number, or define constants(n)."
        )
