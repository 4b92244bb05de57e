"""The parameters that a docstring explains, each as its name, two spaces or more, and a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc, get_annotations
from textwrap import wrap

ENTRY = re.compile(r"(\w+(?:, \w+)*) {2,}(\S.*)")


def entries(docstring: str | None) -> Iterator[tuple[str, str]]:
    """The parameters that ``docstring`` explains, each with its text in one line."""
    lines = cleandoc(docstring or "").split("\n")
    while lines:
        if entry := ENTRY.fullmatch(lines.pop(0)):
            text = [entry[2]]
            while lines and lines[0].startswith(" "):
                text.append(lines.pop(0).strip())
            for name in entry[1].split(", "):
                yield name, " ".join(text)


def meanings(cls: type) -> dict[str, str]:
    """The description of each parameter, from the docstrings of ``cls`` and of its base classes."""
    return {name: text for base in reversed(cls.__mro__) for name, text in entries(base.__doc__)}


def explain_inherited(cls: type) -> None:
    """Add to the docstring of ``cls``, if it has one, the parameters that only its base classes explain.

    ``help(EF21)`` shows no docstring but that of EF21, and ``Method`` explains what many methods share.
    """
    own = cls.__dict__.get("__doc__")
    if not own:
        return
    explained, said = {name for name, _ in entries(own)}, meanings(cls)
    # Its own fields, of which the dataclass is made later, and those that it inherits.
    fields = {**get_annotations(cls), **getattr(cls, "__dataclass_fields__", {})}
    inherited = [name for name in fields if name in said and name not in explained]
    width = max(map(len, inherited), default=0) + 2
    lines = [line for name in inherited for line in _entry(name, said[name], width)]
    cls.__doc__ = "\n".join([cleandoc(own), *([""] if lines else []), *lines])


def _entry(name: str, text: str, width: int) -> list[str]:
    """The lines of a parameter: its name in ``width`` columns, then its text."""
    first, *others = wrap(text, 106 - width)
    return [f"{name:{width}}{first}", *(" " * width + line for line in others)]
