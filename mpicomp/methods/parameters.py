"""The values that the fields of a method may hold: the type of a field carries its check.

A method declares ``gamma: StepSize = "theory"``, and ``Method.__post_init__`` has every field checked as its
type says.  A compressor's type is the kind that the theorem covers, as in ``Q: Unbiased``; any other field
has one of the types below, or ``Annotated`` with a ``Check`` of its own.

Some fields are given as a number, as "theory" or "theory*8", or as None for their default.  In the method
that ``Method.resolve`` returns, such a field is a number, and only this method plays rounds.  No type covers
a field before and after ``resolve``, so a type checker sees ``Any``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

import numpy as np

from mpicomp.base.checks import (
    check_choice,
    check_count,
    check_momentum,
    check_positive_integer,
    check_probability,
    check_rate,
    check_share,
    check_step,
    check_switch,
)
from mpicomp.base.errors import ConfigError, not_allowed
from mpicomp.base.formats import check_format
from mpicomp.base.parts import Parts
from mpicomp.compressors import Absolute, Compressor, Contractive, Unbiased

AUTO = "auto"  # the step size that ``support.auto_step`` sets in every round
AUTO_NOISY = "auto_noisy"  # the same, where gradients are noisy and the method cannot know it
_AUTO = (AUTO, AUTO_NOISY)


def is_auto(step: object) -> bool:
    """Whether a step size is "auto" or "auto_noisy"."""
    return isinstance(step, str) and step in _AUTO


class Check(ABC):
    """Tells whether a field may hold a value."""

    theory: ClassVar[bool] = False  # whether a text stands for a number that ``Method.theory`` gives
    default: ClassVar[bool] = False  # whether None stands for what ``Method.defaults`` gives

    @abstractmethod
    def __call__(self, method: str, name: str, value: Any) -> None:
        """Raise ``ConfigError`` unless the field ``name`` of ``method`` may hold ``value``."""


@dataclass(frozen=True)
class Value(Check):
    """Allows the values in ``also``, and those that ``check(name, value)`` does not refuse by an error."""

    check: Callable[[str, Any], None]
    also: tuple[float | None, ...] = ()

    def __call__(self, method: str, name: str, value: Any) -> None:
        if isinstance(value, bool | np.ndarray) or value not in self.also:  # False is not 0
            self.check(name, value)


class FromTheory(Value):
    """A ``Value`` that may also be "theory" or a multiple of it; ``Method.theory`` gives the number."""

    theory = True


class Defaulted(Value):
    """A ``Value`` that may also be None; ``Method.defaults`` then gives the number."""

    default = True

    def __call__(self, method: str, name: str, value: Any) -> None:
        if value is not None:
            super().__call__(method, name, value)


class Anything(Check):
    """Allows any value: the check of a field whose type carries none, in a method of a user's own."""

    def __call__(self, method: str, name: str, value: Any) -> None:
        pass


@dataclass(frozen=True)
class Choice(Check):
    """Allows the texts in ``allowed``."""

    allowed: tuple[str, ...]

    def __call__(self, method: str, name: str, value: Any) -> None:
        check_choice(name, value, self.allowed)


@dataclass(frozen=True)
class Kinds(Check):
    """Allows compressors of the ``kinds`` that the theorem covers."""

    kinds: tuple[type[Compressor], ...]

    def __call__(self, method: str, name: str, value: Any) -> None:
        if isinstance(value, self.kinds):
            return
        wanted = " or ".join(k.__name__.lower() for k in self.kinds)
        kind = next(
            (k.__name__.lower() for k in (Unbiased, Contractive, Absolute) if isinstance(value, k)), None
        )
        kind = kind or ("neither unbiased nor contractive" if isinstance(value, Compressor) else None)
        what = f"{value}, which is {kind}" if kind else repr(value)
        raise ConfigError(f"{method} needs {name} to be {wanted}; it was given {what}. {self._remedy(value)}")

    def _remedy(self, value: object) -> str:
        variant = value.contractive_variant() if isinstance(value, Compressor) else None
        if Unbiased in self.kinds:
            taken = f"EF21 takes {variant or 'contractive compressors'}"
            if isinstance(value, Absolute):
                taken = "EF14 takes absolute compressors"
            return f"RandK(k=0.01) and Natural() are unbiased; {taken}."
        if Contractive in self.kinds:
            near = variant or (f"Shrunk({value})" if isinstance(value, Unbiased) else None)
            return f"{near} and TopK(k=0.01) would do." if near else "TopK(k=0.01) would do."
        return f"{self.kinds[0].__name__}() would do."


def _or_theory(check: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
    """``check`` for numbers, which also allows "theory" and its multiples."""

    def check_either(name: str, value: float | str) -> None:
        check_step(name, value)
        if not isinstance(value, str):
            check(name, value)

    return check_either


def _check_step_or_auto(name: str, value: float | str) -> None:
    try:
        check_step(name, value)
    except ConfigError:
        steps = "a positive number, 'theory', a multiple such as 'theory*8'"
        raise not_allowed(name, repr(value), f"{steps}, {AUTO!r}, or {AUTO_NOISY!r}") from None


def _check_parts(name: str, value: object) -> None:
    if value is not None and not isinstance(value, Parts):
        raise not_allowed(name, repr(value), "Parts, or None for those of the problem")


def _check_format(name: str, value: str) -> None:
    check_format(value)


class _StepSize(FromTheory):
    """A step size may be "auto" too, which ``Method`` then checks; errors name it only with ``may_adapt``."""

    def __call__(self, method: str, name: str, value: Any) -> None:
        if not is_auto(value):
            super().__call__(method, name, value)


# The step size, a number above 0, "auto" or "auto_noisy": what tuning scales.  Every method has one.
StepSize = Annotated[Any, _StepSize(check_step)]

# μ: of f's strong convexity, or of the Polyak-Łojasiewicz condition.
Curvature = Annotated[Any, FromTheory(check_step)]
CurvatureOrZero = Annotated[Any, FromTheory(check_step, also=(0,))]

# Numbers in (0, 1].
Probability = Annotated[float, Value(check_probability)]
ProbabilityOrDefault = Annotated[Any, Defaulted(check_probability)]
ProbabilityOrTheory = Annotated[Any, FromTheory(_or_theory(check_probability))]

# The rates at which shifts, estimates and averages move: numbers in (0, 1] too.
Rate = Annotated[float, Value(check_rate)]
RateOrDefault = Annotated[Any, Defaulted(check_rate)]
RateOrTheory = Annotated[Any, FromTheory(_or_theory(check_rate))]
RateOrZero = Annotated[Any, Defaulted(check_share)]  # 0 too, or None for its default

Decay = Annotated[float, Value(check_share)]  # of a memory: in [0, 1]
Momentum = Annotated[float, Value(check_momentum)]  # in [0, 1)

# A count, or a fraction below 1 of all; None for all.
Count = Annotated[int | float | None, Value(check_count, also=(None,))]
BatchSize = Count  # of a worker's samples

PositiveInteger = Annotated[int, Value(check_positive_integer)]
PositiveIntegerOrNone = Annotated[int | None, Value(check_positive_integer, also=(None,))]
Switch = Annotated[bool, Value(check_switch)]
ValueFormat = Annotated[str, Value(_check_format)]  # of the numbers on the wire
PartsOfX = Annotated[Parts | None, Value(_check_parts)]  # None until ``bound`` sets those of the problem


@cache
def checks_of(method: type) -> dict[str, Check]:
    """The check of each field of a method's class.

    Raises ``TypeError`` unless exactly one field is a ``StepSize``.
    """
    hints = get_type_hints(method, include_extras=True)
    checks = {f.name: _check_of(hints[f.name]) for f in fields(method)}
    steps = [name for name, check in checks.items() if isinstance(check, _StepSize)]
    if len(steps) != 1:
        raise TypeError(
            f"{method.__name__}: {len(steps)} fields are a StepSize; expected one: declare "
            "`gamma: StepSize`, with StepSize from mpicomp.methods.parameters."
        )
    if getattr(method, "may_adapt", False):
        checks[steps[0]] = _StepSize(_check_step_or_auto)
    return checks


def step_size_of(method: type) -> str:
    """The name of the field that is the step size, in a method's class."""
    return next(name for name, check in checks_of(method).items() if isinstance(check, _StepSize))


def is_tunable(method: type, name: str) -> bool:
    """Whether the field ``name`` of a method's class is a real number, such as a step size or a rate.

    Counts, switches, formats, parts, texts and compressors are not tunable.
    """
    check = checks_of(method)[name]
    of_others = (check_count, check_positive_integer, check_switch, _check_format, _check_parts)
    return isinstance(check, Value) and check.check not in of_others


def _check_of(hint: Any) -> Check:
    for note in getattr(hint, "__metadata__", ()):
        if isinstance(note, Check):
            return note
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if all(isinstance(kind, type) and issubclass(kind, Compressor) for kind in kinds):
        return Kinds(kinds)
    return Anything()
