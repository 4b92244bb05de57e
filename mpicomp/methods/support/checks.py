"""Checks of a method's parameters."""

from __future__ import annotations

from math import inf
from typing import Any

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Absolute, Contractive, Unbiased

# A hyper-parameter as it is given: a number, None (the default), "theory" or "theory*8".  In the method
# that ``resolve`` returns it is a number, and the steps of a round are called on that method only.
Step = Any


def check_step(name: str, value: Step) -> None:
    """Raise ``ConfigError`` unless value is a positive number, "theory" or "theory*NUMBER"."""
    if isinstance(value, str):
        step_factor(name, value)
    elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
        raise ConfigError(_step_message(name, value))


def step_factor(name: str, value: str) -> float:
    """The number c in "theory*c"; 1 for "theory".  Raises ``ConfigError`` for any other text."""
    head, star, factor = value.partition("*")
    try:
        if head.strip() == "theory" and (not star or 0 < float(factor) < inf):
            return float(factor) if star else 1.0
    except ValueError:
        pass
    raise ConfigError(_step_message(name, value))


def _step_message(name: str, value: object) -> str:
    return f"{name}={value!r}; allowed: a positive number, 'theory', or a multiple such as 'theory*8'."


def require(method: str, name: str, value: object, *kinds: type) -> None:
    """Raise ``ConfigError`` unless ``value`` is of one of the ``kinds`` that the theorem covers."""
    if isinstance(value, kinds):
        return
    wanted = " or ".join(k.__name__.lower() for k in kinds)
    kind = next((k.__name__.lower() for k in (Unbiased, Contractive, Absolute) if isinstance(value, k)), None)
    what = f"{value}, which is {kind}" if kind else repr(value)
    raise ConfigError(f"{method} needs {name} to be {wanted}; it was given {what}. {_remedy(value, kinds)}")


def _remedy(value: object, kinds: tuple[type, ...]) -> str:
    if Unbiased in kinds:
        return "RandK(k=0.01) and Natural() are unbiased; EF21 takes contractive compressors."
    if Contractive in kinds:
        shrunk = f"Shrunk({value}) and " if isinstance(value, Unbiased) else ""
        return f"{shrunk}TopK(k=0.01) would do."
    return f"{kinds[0].__name__}() would do."
