"""The interface of one worker's f_i: values, gradients, and batches of samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
import scipy

from mpicomp import kernels
from mpicomp.base.arrays import Array, Indices
from mpicomp.base.errors import ConfigError
from mpicomp.base.inheritance import outdated, renew
from mpicomp.base.units import one_line
from mpicomp.keys import Stream


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


def _put(value: Any) -> Any:
    return (
        kernels.to_device(value) if isinstance(value, np.ndarray) or scipy.sparse.issparse(value) else value
    )
