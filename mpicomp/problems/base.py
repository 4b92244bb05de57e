"""The interface of a problem: min over x in R^d of f(x) = (1/n) sum_i f_i(x), where worker i owns f_i."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.base.arrays import Indices
from mpicomp.base.checks import as_integer
from mpicomp.base.docstrings import explain_inherited
from mpicomp.base.errors import ConfigError
from mpicomp.base.inheritance import depth, hold_plain_values, outdated, renew
from mpicomp.base.parts import Parts
from mpicomp.base.units import one_line
from mpicomp.keys import Stream

Array = NDArray[np.floating]
ROUNDING = 1e-6  # by which a computed mu may exceed a computed L that it equals


class NoConstants(ConfigError):
    """A problem gives no constants at all."""


@dataclass(frozen=True)
class Constants:
    """The constants of f and the f_i from which theory computes step sizes.  ``None`` means not known.

    Only L is required.  If the theorem of a method needs a constant that is None, the method refuses "theory"
    and names that constant.

    =========  ============================================================================
    L          ||grad f(x) - grad f(y)|| <= L ||x - y||
    L_i        the constant L of each f_i; ``L_max`` is the largest, ``L_mean`` the arithmetic mean,
               ``L_tilde`` the root mean square
    L_plus     mean_i ||D_i||^2 <= L_plus^2 ||x-y||^2,  D_i = grad f_i(x) - grad f_i(y)
    L_pm       mean_i ||D_i||^2 - ||mean_i D_i||^2 <= L_pm^2 ||x-y||^2   (Hessian variance)
    mu         strong convexity of f (0 if merely convex, None if f is not convex)
    convex     whether every f_i, and every sample loss f_ij, is convex; None where not known
    f_star     min f
    quadratic  whether every f_i is quadratic; None where not known
    L_sample   mean_i mean_j ||D_ij||^2 <= L_sample^2 ||x-y||^2,  D_ij = grad f_ij(x) - grad f_ij(y) for
               sample j of worker i
    L_sigma    mean_i mean_j ||D_ij - D_i||^2 <= L_sigma^2 ||x-y||^2: script L of VR-MARINA, L_sigma of
               DASHA-MVR (from memory); where it is None, L_sample is an upper bound
    L_ij       the largest smoothness constant of an f_ij
    samples    the largest number of samples of a worker; None where samples are drawn afresh
    sigma      E ||batch_grad(x, 1, stream) - grad f_i(x)||^2 <= sigma^2 for every x and i; None where the
               variance has no bound, as of least squares
    diagonals  a function that returns the diagonals of the f_i's smoothness matrices, shape (n, d)
    liars      the number of workers that may send false gradients
    =========  ============================================================================

    Raises ``ConfigError`` unless L is above 0, if mu, sigma or another L is negative or not finite, if f_star
    is not finite, if samples or liars is no count, and if diagonals is no function.
    """

    L: float
    # Theorems read these three from ``Known``, which never gives None; so their types do not say it.
    L_i: tuple[float, ...] = None  # type: ignore[assignment]
    L_plus: float = None  # type: ignore[assignment]
    L_pm: float = None  # type: ignore[assignment]
    mu: float | None = None
    f_star: float | None = None
    L_sample: float | None = None
    L_ij: float | None = None
    samples: int | None = None
    sigma: float | None = None
    convex: bool | None = None
    L_sigma: float | None = None
    quadratic: bool | None = None
    diagonals: Callable[[], Array] | None = field(default=None, compare=False, repr=False)
    liars: int = 0

    def __post_init__(self) -> None:
        names = ("L_plus", "L_pm", "mu", "L_sample", "L_ij", "L_sigma", "sigma")
        if self.L_i is not None and not _is_row(self.L_i):
            raise ConfigError(
                f"Constants(L_i={one_line(self.L_i)}); allowed: one number for each worker, or None."
            )
        known = {name: value for name in names if (value := getattr(self, name)) is not None}
        known |= {f"L_i[{i}]": L for i, L in enumerate(() if self.L_i is None else self.L_i)}
        if wrong := [f"{name}={value!r}" for name, value in known.items() if not _is_size(value)]:
            raise ConfigError(f"Constants({', '.join(wrong)}); allowed: 0 or above, or None where not known.")
        if not (_is_size(self.L) and self.L > 0):
            raise ConfigError(f"Constants(L={self.L!r}); allowed: a number above 0.")
        if self.f_star is not None and not _is_finite(self.f_star):
            raise ConfigError(f"Constants(f_star={self.f_star!r}); allowed: a finite number, or None.")
        if self.samples is not None:
            as_integer("Constants.samples", self.samples)
        as_integer("Constants.liars", self.liars, least=0)
        if self.diagonals is not None and not callable(self.diagonals):
            raise ConfigError(
                f"Constants(diagonals={one_line(self.diagonals)}); allowed: a function that returns them, or "
                "None."
            )
        # A step size is a Python float, and one made of numpy.float32 would be of single precision.
        for name in ("L", "f_star", *names):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, float(value))
        if self.L_i is not None:
            object.__setattr__(self, "L_i", tuple(map(float, self.L_i)))

    @property
    def L_max(self) -> float:
        """The largest L_i; None if they are not known."""
        return None if self.L_i is None else max(self.L_i)

    @property
    def L_mean(self) -> float:
        """The arithmetic mean of the L_i; None if they are not known."""
        return None if self.L_i is None else float(sum(self.L_i) / len(self.L_i))

    @property
    def L_tilde(self) -> float:
        """The root mean square of the L_i; None if they are not known."""
        if self.L_i is None:
            return None
        return float(np.sqrt(np.mean(np.square(self.L_i))))


def _is_size(value: Any) -> bool:
    """Whether ``value`` is one finite number, 0 or above."""
    return _is_finite(value) and bool(value >= 0)


def _is_row(value: Any) -> bool:
    """Whether ``value`` is an array or a list of one dimension."""
    try:
        return np.ndim(value) == 1
    except ValueError:  # a list of lists of several lengths
        return False


def _is_finite(value: Any) -> bool:
    """Whether ``value`` is one finite number."""
    try:
        return np.ndim(value) == 0 and bool(-inf < value < inf)
    except (TypeError, ValueError, RuntimeError):  # texts, and arrays of several numbers
        return False


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


class Known:
    """``Constants`` for the theorem of ``method``: L_i, L_plus, L_pm, L_max, L_mean and L_tilde are never
    None.

    Reading one of these that is not known raises ``ConfigError`` with the remedy.  The other constants may be
    None: a theorem that needs one of them checks this itself.
    """

    def __init__(self, constants: Constants, method: str, parameters: str) -> None:
        self._constants, self._method, self._parameters = constants, method, parameters

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._constants, name)
        if value is None and name in _FOLLOWS_FROM:
            raise ConfigError(
                f"{self._method} takes its theory from the constant {name}, and this problem's constants do "
                f"not have it. Give {_FOLLOWS_FROM[name]} in the Constants that the problem's constants(n) "
                f"returns, or {self._parameters} as numbers."
            )
        return value


# A constant that theorems ask for -> the field of ``Constants`` from which it follows.
_FOLLOWS_FROM = {
    **dict.fromkeys(("L_i", "L_max", "L_mean", "L_tilde"), "L_i"),
    "L_plus": "L_plus",
    "L_pm": "L_pm",
}


class Objective(ABC):
    """One worker's f_i; it holds that worker's data only.

    Its methods must not write into x, which belongs to the run, nor into a gradient after returning it.

    ``samples`` is m_i if f_i is the mean of m_i sample losses f_ij.  It is None if f_i has no samples, or
    draws new ones each time.
    """

    samples: int | None = None
    of_ones_own: ClassVar[bool] = False  # whether its class, or a base of it, is not the package's

    def __init_subclass__(cls, **options: Any) -> None:
        """A class with a ``value`` or ``grad`` of its own does not inherit ``value_and_grad`` of others."""
        super().__init_subclass__(**options)
        cls.of_ones_own |= cls.__module__.partition(".")[0] != "mpicomp"
        renew(cls, "value_and_grad", "value", "grad", plain=Objective.value_and_grad)

    @abstractmethod
    def value(self, x: Array) -> float:
        """f_i(x)."""

    @abstractmethod
    def grad(self, x: Array) -> Array:
        """The gradient of f_i at x: a new array of shape (d,), which the caller may keep."""

    def value_and_grad(self, x: Array) -> tuple[float, Array]:
        """``value(x)`` and ``grad(x)``, the same bits; for the recorded rows, which have both.

        An objective may override it where the two share work.
        """
        return self.value(x), self.grad(x)

    def batch_grad(self, x: Array, b: int, stream: Stream) -> Array:
        """The mean gradient at x, shape (d,), over b samples drawn from ``stream``.

        The samples depend on ``stream`` only, not on x; the mean over streams is ``grad(x)``.
        Raises ``ConfigError`` if f_i has no samples, or fewer than b.
        """
        raise ConfigError(
            f"{type(self).__name__} has no stochastic gradients. The problems on data sets have them, and "
            "noisy(PROBLEM, sigma) adds Gaussian noise to the gradients of any other. A class of your own "
            "defines batch_grad(x, b, stream), or is an mpicomp.FiniteSum, with part(rows)."
        )

    def sampled(self, b: int, stream: Stream) -> Objective:
        """The objective that is the mean of b sample losses drawn from ``stream``, on the same device.

        Its gradient at x is ``batch_grad(x, b, stream)``.  A run calls it once, if ``observe`` is a number.
        Raises ``ConfigError`` if f_i has no samples, fewer than b, or no values for single samples.
        """
        raise ConfigError(
            f"{type(self).__name__} does not define sampled(b, stream), the objective of b of its samples. "
            "Define it, or observe f in full (observe='full') or never (observe='never')."
        )

    @property
    def told(self) -> Objective:
        """The objective whose gradients a method is given: this one, unless the worker is Byzantine."""
        return self

    def on_device(self) -> Self:
        """This objective with its arrays, and those of objectives in its fields, on the run's device.

        Its methods must accept the device's arrays as well as numpy's.  Without a device, it is itself.
        """
        if kernels.device() is None:
            return self
        moved = copy(self)
        for name, value in vars(self).items():
            there = value.on_device() if isinstance(value, Objective) else _put(value)
            object.__setattr__(moved, name, there)  # also of a frozen dataclass
        return moved

    def smoothness_matrix(self) -> Array:
        """L_i, symmetric, shape (d, d), with f_i(y) <= f_i(x) + <grad f_i(x), y - x> + ||y - x||^2_{L_i} / 2.

        The gradients of f_i lie in the range of L_i.  Raises ``ConfigError`` if L_i is not known.
        """
        raise ConfigError(
            f"{type(self).__name__} has no smoothness matrix. The problems on data sets and quadratics have "
            "one; for others take the method without the plus."
        )


def _put(value: Any) -> Any:
    return (
        kernels.to_device(value) if isinstance(value, np.ndarray) or scipy.sparse.issparse(value) else value
    )


class FiniteSum(Objective):
    """An f_i that is a mean over ``samples`` rows; a batch is b rows, drawn without replacement."""

    samples: int

    @abstractmethod
    def part(self, rows: Indices) -> Objective:
        """The mean over the given rows only, as an objective, with the penalty of f_i."""

    def batch_grad(self, x: Array, b: int, stream: Stream) -> Array:
        """See ``Objective``.  The rows are summed in increasing order; b = ``samples`` gives ``grad(x)``."""
        return self.sampled(b, stream).grad(x)

    def sampled(self, b: int, stream: Stream) -> Objective:
        """See ``Objective``.  b = ``samples`` gives f_i itself."""
        if not 1 <= b <= self.samples:
            raise ConfigError(
                f"a batch of b = {b} of a worker's {self.samples} samples; allowed: 1 to {self.samples}. "
                "Take a smaller b, or fewer workers."
            )
        if b == self.samples:
            return self
        chosen = self.part(kernels.to_device(np.sort(stream.permutation(self.samples, 0, b))))
        if not isinstance(chosen, Objective):
            name = type(self).__name__
            raise ConfigError(f"{name}.part(rows) gives {one_line(chosen)}; expected an mpicomp.Objective.")
        if not isinstance(chosen, type(self)) and outdated(type(self), "part", "value", "grad"):
            raise ConfigError(
                f"{type(self).__name__} has a value or grad of its own, and the part(rows) of "
                f"{type(chosen).__name__}, which gives batches of another function. Define part(rows) too."
            )
        return chosen


def _constants_of_another(problem: Problem, n: int) -> Constants:
    """``constants`` of a class that has another objective than the class of which it has inherited them."""
    name = type(problem).__name__
    raise NoConstants(
        f"{name} has an objective of its own, and the constants of its base are those of another function. "
        f"Define constants(n) in {name}; where they still hold, it is `return super().constants(n)`. Or give "
        "step sizes as numbers."
    )


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
