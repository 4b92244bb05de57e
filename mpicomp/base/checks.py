"""Check parameters; each function raises a ``ConfigError`` that names the allowed values."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from fractions import Fraction
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from math import inf
from numbers import Real
from typing import Any

import numpy as np

from mpicomp.base.errors import ConfigError, not_allowed
from mpicomp.base.units import one_line

LARGEST = sys.float_info.max  # an int above it is no float; infinity is above it, too
MOST_WORKERS = 10**7  # each has its objects, of a KB or more, in some process


def plain_value(value: Any) -> Any:
    """A number or text of numpy, or a ``Fraction``, as Python's; any other ``value`` itself.

    A configuration is written as text, and numpy writes np.float64(0.1) and np.str_('f4').
    """
    if isinstance(value, np.str_):
        return str(value)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    return float(value) if isinstance(value, np.floating | Fraction) else value


def runs_later(function: Callable[..., Any]) -> bool:
    """Whether a call of ``function`` runs none of its code: it is async, or a generator with ``yield``."""
    kinds = (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction)
    return any(is_kind(one) for is_kind in kinds for one in (function, type(function).__call__))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def check_count(name: str, value: int | float) -> None:
    """Raise ``ConfigError`` unless ``value`` is a positive count or a fraction in (0, 1)."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not (whole or (isinstance(value, float) and 0 < value < 1)):
        raise not_allowed(
            name, repr(value), "a count, an integer from 1 to d, or a fraction, a float between 0 and 1"
        )


def resolve_count(k: int | float, d: int) -> int:
    """The number of coordinates that k means in dimension d: k itself, or max(1, round(k d)) for a fraction.

    Raises ``ConfigError`` if it exceeds d.
    """
    count = k if isinstance(k, int) else max(1, round(k * d))
    if count > d:
        raise ConfigError(f"k={k} exceeds the dimension d={d}; allowed: 1 to {d}, or a fraction below 1.")
    return count


def as_integer(name: str, value: Any, least: int = 1, most: int = 2**63 - 1) -> int:
    """``value`` as an int.  Raises ``ConfigError`` unless it is an integer from ``least`` to ``most``."""
    try:
        count = operator.index(value)
    except TypeError:
        count = least - 1
    if isinstance(value, bool) or not least <= count <= most:
        shown = repr(value) if isinstance(value, str | Real) else one_line(value)
        raise not_allowed(name, shown, f"an integer from {least} to {most}")
    return count


def as_workers(workers: Any) -> int:
    """``workers`` as an int.  Raises ``ConfigError`` unless it is an integer from 1 to ``MOST_WORKERS``."""
    return as_integer("workers", workers, most=MOST_WORKERS)


def as_seed(seed: Any) -> int:
    """``seed`` as an int.  Raises ``ConfigError`` unless it is an integer from 0 to 2^64 - 1."""
    return as_integer("seed", seed, least=0, most=2**64 - 1)


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise ``ConfigError`` unless ``value`` is one of ``allowed``."""
    if not isinstance(value, str) or value not in allowed:
        raise not_allowed(name, repr(value), ", ".join(map(repr, allowed)))


def number(allowed: str, holds: Callable[[float], bool], of: Any = int | float) -> Callable[[str, Any], None]:
    """A check of a name and a value: a number of the kind ``of``, not a bool, for which ``holds`` is true."""

    def check(name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, of) or not holds(value):
            raise not_allowed(name, one_line(value), allowed)

    return check


def integer(allowed: str, holds: Callable[[float], bool]) -> Callable[[str, Any], None]:
    """``number`` for integers alone."""
    return number(allowed, holds, int)


check_positive_integer = integer("a positive integer", lambda v: v >= 1)
check_probability = number("a probability above 0 and at most 1", lambda v: 0 < v <= 1)
check_rate = number("a number above 0 and at most 1", lambda v: 0 < v <= 1)
check_share = number("a number from 0 to 1", lambda v: 0 <= v <= 1)
check_momentum = number("a number from 0 up to, but not, 1", lambda v: 0 <= v < 1)


def check_switch(name: str, value: bool) -> None:
    """Raise ``ConfigError`` unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise not_allowed(name, repr(value), "True or False")


def as_switch(name: str, value: Any) -> bool:
    """``value`` as a bool.  Raises ``ConfigError`` unless it is True or False, of Python or numpy, or 1 or 0.

    Texts are refused: "no" is true to Python.
    """
    if not isinstance(value, bool | int | np.bool_) or value not in (True, False):
        raise not_allowed(name, one_line(value), "True or False")
    return bool(value)


def check_step(name: str, value: float | str) -> None:
    """Raise ``ConfigError`` unless ``value`` is a positive number, "theory" or "theory*NUMBER"."""
    if isinstance(value, str):
        theory_factor(name, value)
    elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST:
        raise _not_a_step(name, value)


def theory_factor(name: str, value: str) -> float:
    """The number in "theory*NUMBER", 1 for "theory".  Raises ``ConfigError`` for any other text."""
    head, star, factor = value.partition("*")
    try:
        if head.strip() == "theory" and (not star or 0 < float(factor) < inf):
            return float(factor) if star else 1.0
    except ValueError:
        pass
    raise _not_a_step(name, value)


def _not_a_step(name: str, value: object) -> ConfigError:
    return not_allowed(name, repr(value), "a positive number, 'theory', or a multiple such as 'theory*8'")


def check_at_least(name: str, value: Any, least: int, rule: str) -> None:
    """Raise ``ConfigError`` unless ``value`` is an integer and at least ``least``.

    The message ends with the text ``rule``.
    """
    allowed = f"an integer from {least} upwards"
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name} = {value!r}; allowed: {allowed}.", allowed=allowed)
    if value < least:
        raise ConfigError(f"{name} = {value}: {rule}.", allowed=allowed)


def check_nonnegative(name: str, value: Any, meaning: str) -> None:
    """Raise ``ConfigError`` unless 0 <= value <= LARGEST; ``meaning`` names the number in its message."""
    if not (_is_number(value) and 0 <= value <= LARGEST):
        raise ConfigError(
            f"{name} = {value!r}: {meaning} is a number, finite and at least 0.", allowed="a number from 0 on"
        )


def check_positive(name: str, value: Any, meaning: str) -> None:
    """Raise ``ConfigError`` unless 0 < value <= LARGEST; ``meaning`` names the number in its message."""
    if not (_is_number(value) and 0 < value <= LARGEST):
        raise ConfigError(
            f"{name} = {value!r}: {meaning} is a number, finite and above 0.", allowed="a number above 0"
        )
