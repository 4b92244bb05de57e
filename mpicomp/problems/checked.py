"""A worker's objective as ``check_problem`` asks it: every answer is checked for its kind."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, sqrt
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.base.given_arrays import refuse_mask
from mpicomp.base.units import one_line
from mpicomp.keys import Stream
from mpicomp.problems.objective import Objective

NOISE = 10  # units in the last place by which a value may be off, or a gradient in length


class Point(NamedTuple):
    """A point x, with the words that name it in messages."""

    name: str
    x: Array

    @property
    def scale(self) -> float:
        """The length against which a distance from x is long or short: |x|, or 1 if that is less."""
        return max(1.0, length(self.x))

    def moved(self, by: Array) -> Point:
        """The point x + by, in the precision of x."""
        return Point(f"{length(by):.3g} from {self.name}", (self.x + by).astype(self.x.dtype))


class Checked:
    """The objective f of a worker, which ``name`` names.

    f gets a copy of x, read-only: in a run x belongs to the run.  Raises ``ConfigError`` if f writes into it,
    if a value is no finite real number, and if a gradient is no vector of d finite numbers in the precision
    of x, or in double precision.
    """

    def __init__(self, name: str, f: Objective) -> None:
        self.name, self.f = name, f
        self._epsilon = 0.0

    def value(self, at: Point) -> float:
        return self._number("value", at, self._answer("value", at, self.f.value))

    def grad(self, at: Point) -> Array:
        return self._vector("grad", at, self._answer("grad", at, self.f.grad))

    def value_and_grad(self, at: Point) -> tuple[float, Array]:
        what = "value_and_grad"
        pair = self._answer(what, at, self.f.value_and_grad)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise self.broken(at, f"{what} gave {type(pair).__name__}; allowed: the value and the gradient")
        return self._number(what, at, pair[0]), self._vector(what, at, pair[1])

    def batch_grad(self, at: Point, b: int, stream: Stream) -> Array:
        answer = self._answer("batch_grad", at, lambda x: self.f.batch_grad(x, b, stream))
        return self._vector("batch_grad", at, answer)

    def epsilon(self, at: Point) -> float:
        """The relative rounding of the precision in which f computes.

        A double does not tell: f may have rounded x, and then the rounded x has the same value and
        gradient; or rounded the value, and then it is one of single precision.
        """
        double = float(np.finfo(np.float64).eps)
        if self._epsilon != double:  # where f is flat it cannot be told
            self._epsilon = double if self._is_double(at) else float(np.finfo(np.float32).eps)
        return self._epsilon

    def _is_double(self, at: Point) -> bool:
        wave = np.sin(np.arange(1.0, at.x.size + 1))  # x itself may be 0, which rounding leaves alone
        near = at.moved(1e-3 * at.scale / length(wave) * wave)
        rounded = Point(near.name, near.x.astype(np.float32).astype(at.x.dtype))
        value, gradient = self.value(near), self.grad(near)
        if gradient.dtype != np.float64 or float(np.float32(value)) == value:
            return False
        # Of a large value, or a flat one, rounding may hide what x does; not of the gradient too.
        return value != self.value(rounded) or gradient.tobytes() != self.grad(rounded).tobytes()

    def broken(self, at: Point, what: str) -> ConfigError:
        return ConfigError(f"{self.name}, at {at.name}: {what}.")

    def _answer(self, what: str, at: Point, ask: Callable[[Array], Any]) -> Any:
        x = at.x.copy()
        x.flags.writeable = False
        writes = f"{what} writes into x, or into another array that is read-only; write into a copy"
        try:
            answer = ask(x)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise self.broken(at, writes) from error
        if x.tobytes() != at.x.tobytes():  # past numpy's flag, as a torch tensor in the same memory can
            raise self.broken(at, writes)
        return answer

    def _number(self, what: str, at: Point, value: Any) -> float:
        scalar = isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "fiu"
        if not isinstance(value, Real) and not scalar:
            shape = f" of shape {value.shape}" if hasattr(value, "shape") else ""
            raise self.broken(at, f"{what} gave {type(value).__name__}{shape}; allowed: one real number")
        if not isfinite(value := float(value)):
            raise self.broken(at, f"{what} gave {value}; allowed: a finite number")
        return value

    def _vector(self, what: str, at: Point, g: Any) -> Array:
        if not isinstance(g, np.ndarray):
            raise self.broken(at, f"{what} gave {one_line(g)}; allowed: an array of numpy")
        refuse_mask(f"{self.name}, at {at.name}: {what}'s gradient", g)
        if g.shape != at.x.shape:
            raise self.broken(at, f"{what} gave the shape {g.shape}; allowed: {at.x.shape}")
        if g.dtype not in (at.x.dtype, np.float64):
            both = " or ".join(dict.fromkeys((str(at.x.dtype), "float64")))
            raise self.broken(at, f"{what} gave {g.dtype} for an x of {at.x.dtype}; allowed: {both}")
        if (count := np.sum(~np.isfinite(g))) > 0:
            raise self.broken(at, f"{what} is not finite in {count} of its {g.size} coordinates")
        return g


def length(v: Array) -> float:
    """|v|"""
    return sqrt(np.sum(np.square(v, dtype=np.float64)))


def unit(draw: np.random.Generator, d: int) -> Array:
    """A random direction: a vector of length 1."""
    v = draw.standard_normal(d)
    return v / length(v)
