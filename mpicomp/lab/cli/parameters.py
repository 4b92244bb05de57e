"""The parameters of a class for `mpicomp list NAME`: their meanings, defaults and allowed values.

The meaning is read from the docstring of the class, or of a class that it inherits from: the parameter's
name, two spaces or more, and the text.  The allowed values follow from the field's type or, in a method, from
its check.  Those of a compressor or a problem are read from the error that an example of the class raises for
another text, or for -1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args, get_type_hints

from mpicomp.base.docstrings import meanings
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import COMPRESSORS, Absolute, Compressor, Contractive, Unbiased
from mpicomp.lab.cli.examples import example
from mpicomp.methods import Method
from mpicomp.methods.parameters import Anything, Check, Defaulted, Kinds, Value, checks_of
from mpicomp.problems import PROBLEMS, Problem
from mpicomp.text.config import describe, parse_compressor, parse_problem

WORDS: dict[Any, str] = {
    **{int: "an integer", float: "a number", str: "a text", type(None): "None"},
    Any: "a text, or arrays in Python",  # the data of a problem
}


@dataclass(frozen=True)
class Parameter:
    """One parameter: its default as text, or None if it must be given; its allowed values; its meaning."""

    name: str
    default: str | None
    allowed: str
    meaning: str


def parameters(cls: type) -> Iterator[Parameter]:
    """The parameters of a method, compressor or problem, in their order."""
    meaning = meanings(cls)
    checks = checks_of(cls) if issubclass(cls, Method) else {}
    hints = get_type_hints(cls)
    for name, default in describe(cls).parameters.items():
        allowed = _by_check(checks.get(name, Anything()))
        allowed = allowed or _by_trial(cls, name, hints[name]) or _by_type(hints[name])
        yield Parameter(name, default, allowed, meaning.get(name, "").replace("``", ""))


def _by_check(check: Check) -> str:
    """The values that ``check`` accepts, in the words of its errors; "" if it accepts anything."""
    if isinstance(check, Kinds):
        return " or ".join(map(_kind, check.kinds))
    said = [text for text in map(partial(_refusal, check), (object(), 2.0)) if text]
    if not said:
        return ""
    text = said[0] if said[-1] == said[0] else f"{said[0]}; a number has to be {said[-1]}"
    if isinstance(check, Value):
        text += "".join(f"; or {value}" for value in check.also if str(value) not in text)
    return text + ("; or None for the default" if isinstance(check, Defaulted) else "")


def _refusal(check: Check, value: Any) -> str:
    """The allowed values that the error of ``check`` names; "" if it accepts ``value``."""
    try:
        check("", "", value)
    except ConfigError as error:
        return error.allowed.replace(" from 1 to d", " above 0")  # methods count not only coordinates
    return ""


def _by_trial(cls: type, name: str, hint: Any) -> str:
    """The texts or numbers that the field takes, as its error names them, and other values of its type.

    "" if no error names any.
    """
    types = get_args(hint) or (hint,)
    tried = {str} if str in types else {int, float}
    named = _refused(cls, name, "?" if str in types else -1) if tried & {*types} else ""
    others = [_kind(kind) for kind in types if kind not in tried]
    return " or ".join([named, *others]) if named else ""


def _refused(cls: type, name: str, value: Any) -> str:
    """The allowed values that the field's error for ``value`` names; "" if it names none or is not raised."""
    for table, parse in ((COMPRESSORS, parse_compressor), (PROBLEMS, parse_problem)):
        if describe(cls).name in table:
            made: Any = parse(example(describe(cls).name))
            try:
                replace(made, **{name: value})
            except ConfigError as error:
                return error.allowed
    return ""


def _by_type(hint: Any) -> str:
    """The values that a field of type ``hint`` may hold, in words."""
    return " or ".join(dict.fromkeys(map(_kind, get_args(hint) or (hint,))))


def _kind(kind: Any) -> str:
    """A type in words."""
    if kind in WORDS:
        return WORDS[kind]
    if kind in COMPRESSORS.values():
        return str(describe(kind).name)
    if kind in (Unbiased, Contractive, Absolute):
        return f"{'a' if kind is Contractive else 'an'} {kind.__name__.lower()} compressor"
    if isinstance(kind, type) and issubclass(kind, Compressor | Problem):
        return f"a {kind.__name__.lower()}"
    return "a tuple"
