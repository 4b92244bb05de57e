"""The constants of a problem, from which theorems compute step sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.checks import as_integer
from mpicomp.base.errors import ConfigError
from mpicomp.base.units import one_line

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
