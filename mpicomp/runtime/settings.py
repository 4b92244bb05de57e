"""The settings of a run, each written once: its type, its default, its help, the values that it may have.

They are the fields of ``Limits``, ``Observation`` and ``Placement``.  The defaults of ``run``'s keywords, the
options of the command line and the keys of a suite's file are read from these fields.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import Field, field, fields
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints


def setting(default: Any, help: str, allowed: Collection[str] = (), metavar: str | None = None) -> Any:
    """A field with this default, and its line in the command's help.

    allowed  the texts that it may be, where it is one of a few
    metavar  of its value in the help, where the type does not say enough
    """
    return field(default=default, metadata={"help": help, "allowed": tuple(allowed), "metavar": metavar})


def settings_of(group: type) -> list[tuple[Field[Any], tuple[type, ...]]]:
    """The settings that are the fields of ``group``, a dataclass, each with its values' types but None's."""
    hints = get_type_hints(group)
    return [(f, _types(hints[f.name])) for f in fields(group)]


def _types(hint: Any) -> tuple[type, ...]:
    members = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    plain = [list if get_origin(member) is Sequence else member for member in members]
    return tuple(member for member in plain if member is not type(None))
