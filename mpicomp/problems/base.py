"""The interface of a problem: min over x in R^d of f(x) = (1/n) sum_i f_i(x), where worker i owns f_i."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.checks import as_integer
from mpicomp.base.docstrings import explain_inherited
from mpicomp.base.errors import ConfigError
from mpicomp.base.inheritance import depth, hold_plain_values, renew
from mpicomp.base.parts import Parts
from mpicomp.base.units import one_line
from mpicomp.problems.constants import ROUNDING, Constants, NoConstants
from mpicomp.problems.objective import FiniteSum, Objective


class Problem(ABC):
    """An objective f = (1/n) sum_i f_i for any n: a frozen dataclass whose fields are its configuration.

    ``eval(repr(p)) == p``, unless its data was given as arrays: then its text names their shape and SHA-256.

    Parameters that several problems have:

    data   a name that `mpicomp list data` shows, the path of a file, or arrays; see docs/data.md
    split  how rows are shared out: "contiguous", "shuffled", "sorted" (by label), "dirichlet(ALPHA)", or an
           array with each row's worker
    lam    the weight of the penalty, 0 or above
    d      the dimension, 2 or above
    seed   the seed of the random draws of the problem, from 0 to 2^64 - 1
    """

    of_ones_own: ClassVar[bool] = False  # whether its class, or a base of it, is not the package's

    def __init_subclass__(cls, **options: Any) -> None:
        """A class of one's own with another ``objective`` does not inherit the ``constants`` of its base."""
        super().__init_subclass__(**options)
        explain_inherited(cls)
        if cls.__module__.partition(".")[0] != "mpicomp":
            cls.of_ones_own = True
        else:
            hold_plain_values(cls)
        theirs: Any = cls.__mro__[depth(cls, "constants")]  # the class that defines the constants
        of_any_objective = getattr(theirs.objective, "__isabstractmethod__", False)
        if cls.of_ones_own and not of_any_objective:
            renew(cls, "constants", "objective", plain=_constants_of_another)

    @abstractmethod
    def dimension(self) -> int:
        """The dimension d."""

    def parts(self) -> Parts:
        """The names and shapes of the arrays that x holds, d entries in all; by default a single vector."""
        return Parts.single(self.dimension())

    @abstractmethod
    def objective(self, i: int, n: int) -> Objective:
        """The f_i of worker i out of n; only that worker's rows are read."""

    def fingerprint(self) -> str:
        """A text that identifies the data, such as a hash: a run cannot be resumed on other data."""
        return ""

    def shard_sizes(self, n: int) -> list[int] | None:
        """The number of samples of each of n workers; None if the problem has no samples."""
        return None

    def x0(self) -> Array:
        """The starting point of all methods, shape (d,); a run uses rank 0's on all ranks."""
        return np.zeros(self.dimension())

    def diagonals(self, n: int) -> Array:
        """The diagonals of the smoothness matrices of n workers, shape (n, d)."""
        return np.array([np.diagonal(self.objective(i, n).smoothness_matrix()) for i in range(n)])

    def constants(self, n: int) -> Constants:
        """The constants for n workers.  Raises ``ConfigError`` if the problem does not know them."""
        raise NoConstants(
            f'{type(self).__name__} gives no constants, so what says "theory" cannot be computed. '
            "Give gamma, and p or the like where the method has it, as numbers, or define constants(n)."
        )


@dataclass(frozen=True)
class Wrapped(Problem):
    """Base of the problems that change another one's gradients: x and the data are those of ``problem``."""

    problem: Problem

    def dimension(self) -> int:
        return self.problem.dimension()

    def parts(self) -> Parts:
        return self.problem.parts()

    def fingerprint(self) -> str:
        return self.problem.fingerprint()

    def shard_sizes(self, n: int) -> list[int] | None:
        return self.problem.shard_sizes(n)

    def x0(self) -> Array:
        return self.problem.x0()


def _constants_of_another(problem: Problem, n: int) -> Constants:
    """``constants`` of a class that has another objective than the class of which it has inherited them."""
    name = type(problem).__name__
    raise NoConstants(
        f"{name} has an objective of its own, and the constants of its base are those of another function. "
        f"Define constants(n) in {name}; where they still hold, it is `return super().constants(n)`. Or give "
        "step sizes as numbers."
    )


def objective_of(problem: Problem, i: int, n: int) -> Objective:
    """The problem's f_i of worker i out of n.

    Raises ``ConfigError`` if it is no ``Objective``, or if its ``samples`` are no count, or not given.
    """
    f, name = problem.objective(i, n), f"{type(problem).__name__}.objective({i}, {n})"
    if not isinstance(f, Objective):
        raise ConfigError(f"{name} gives {one_line(f)}; expected an mpicomp.Objective.")
    if (samples := f.samples) is not None:
        as_integer(f"{name}.samples", samples, least=0)
    elif isinstance(f, FiniteSum):
        raise ConfigError(f"{name} is a FiniteSum without samples: set self.samples, the number of its rows.")
    return f


def constants_of(problem: Problem, n: int) -> Constants:
    """The problem's constants for n workers.

    Raises ``ConfigError`` if the problem does not know them, if it gives something else, if mu is above L, or
    if it gives L_i for another number of workers than n.
    """
    c, name = problem.constants(n), f"{type(problem).__name__}.constants({n})"
    if not isinstance(c, Constants):
        raise ConfigError(f"{name} gives {one_line(c)}; expected mpicomp.Constants.")
    if c.mu is not None and c.mu > c.L * (1 + ROUNDING):
        raise ConfigError(f"{name} gives mu={c.mu} and L={c.L}; allowed: a mu of L at most.")
    if c.L_i is not None and len(c.L_i) != n:
        raise ConfigError(f"{name} gives {len(c.L_i)} L_i; expected one for each worker.")
    return c


def parts_of(problem: Problem) -> Parts:
    """The problem's parts.  Raises ``ConfigError`` if it gives something else, or parts of another vector."""
    parts, d = problem.parts(), problem.dimension()
    name = f"{type(problem).__name__}.parts()"
    if not isinstance(parts, Parts):
        raise ConfigError(
            f"{name} gives {one_line(parts)}; expected mpicomp.Parts of mpicomp.Part(name, shape)."
        )
    if parts.size != d:
        raise ConfigError(f"{name} has {parts.size} entries, and its dimension() is {d}: {parts}.")
    return parts


def fingerprint_of(problem: Problem) -> str:
    """The problem's fingerprint.  Raises ``ConfigError`` if it gives something else than a text."""
    fingerprint = problem.fingerprint()
    if not isinstance(fingerprint, str):
        name = f"{type(problem).__name__}.fingerprint()"
        raise ConfigError(f"{name} gives {one_line(fingerprint)}; expected a text, such as a hexdigest().")
    return fingerprint
