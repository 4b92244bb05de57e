"""TOML as text: read, of the size and with the values that a suite or a study may have, and written."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from mpicomp.base.errors import ConfigError

T = TypeVar("T")

_LONGEST = 2**28  # characters of a suite, which may hold the numbers of a long x0
_DEEPEST = 8  # levels of nested lists and tables; a method's ``tune`` in a study's case is at level 4


def read_file(path: str | Path, parse: Callable[[str], T]) -> T:
    """``parse`` of the text in the file ``path``.  Raises ``ConfigError``, naming the file, if that fails."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(_LONGEST + 1)  # a device such as /dev/zero has no end
        if len(text) > _LONGEST:
            raise ConfigError(f"it is longer than {_LONGEST} characters. Give a suite.")
        return parse(text)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.") from None
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None


def read_toml(source: str) -> dict[str, Any]:
    """The tables in ``source``.  Raises ``ConfigError`` if it is no TOML, or has a refused value.

    Refused are dates, times, numbers that are not finite, integers beyond 64 bits, and values nested too
    deeply.
    """
    try:
        top = tomllib.loads(source)
    except ValueError as error:  # of TOML, or of Python for an integer of more than 4300 digits
        raise ConfigError(f"not a TOML file: {error}.") from None
    except RecursionError:
        raise ConfigError("its values are nested too deeply.") from None
    for key, value in top.items():
        _check_value(key, value)
    return top


def _check_value(key: str, value: Any, depth: int = 0) -> None:
    """Raise ``ConfigError`` for dates, infinities, integers beyond 64 bits, and values nested too deeply."""
    if depth > _DEEPEST:
        raise ConfigError(f"{key} is nested too deeply.")
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_value(name, inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check_value(key, inner, depth + 1)
    elif not isinstance(value, str | int | float) or value in (inf, -inf) or value != value:
        raise ConfigError(f"{key} = {value}; allowed: a text, a finite number, true, false, a list, a table.")
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ConfigError(f"{key} has an integer of {value.bit_length()} bits; allowed: 64 bits at most.")


def write_toml(settings: Mapping[str, Any], methods: Iterable[Mapping[str, Any]]) -> str:
    """The settings and methods as TOML text; its strings, numbers and lists are written as in JSON."""
    tables = [_lines(settings), *(["", "[[method]]", *_lines(method)] for method in methods)]
    return "\n".join(chain.from_iterable(tables)) + "\n"


def _lines(table: Mapping[str, Any]) -> list[str]:
    """A line for each setting.  JSON has U+007F as it is, and TOML only as an escape."""
    values = (json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") for value in table.values())
    return [f"{key} = {value}" for key, value in zip(table, values, strict=True)]
