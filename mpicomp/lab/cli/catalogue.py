"""The lines of `mpicomp list`.  Papers are cited from memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap

from mpicomp.compressors import COMPRESSORS, Absolute, Contractive, Unbiased
from mpicomp.data import BUNDLED, BUNDLED_IMAGES, KNOWN, KNOWN_IMAGES
from mpicomp.lab.cli.parameters import parameters
from mpicomp.methods import METHODS, Method
from mpicomp.problems import PROBLEMS
from mpicomp.text.config import describe
from mpicomp.text.own_classes import import_class, is_reference

NAMES: dict[str, type] = {**METHODS, **COMPRESSORS, **PROBLEMS}


def catalogue(kind: str | None) -> Iterator[str]:
    """The printed lines: all entries of ``kind``, of all kinds if it is None, or the class of that name."""
    cls = None if kind is None else class_named(kind)
    if cls is not None:
        yield from _entry(cls)
        yield from _explained(cls)
        return
    tables: dict[str, Mapping[str, type]] = {
        "methods": METHODS,
        "compressors": COMPRESSORS,
        "problems": PROBLEMS,
    }
    for name, table in tables.items():
        if kind in (None, name):
            yield from ("", name.upper())
            for cls in table.values():
                yield from _entry(cls)
    if kind in (None, "data"):
        yield from ("", "DATA")
        yield f"  {', '.join(BUNDLED)}: bundled, no download"
        for name, known in KNOWN.items():
            yield f"  {name}: {known.rows} rows, {known.features} features; mpicomp data fetch {name}"
        yield f"  images in ten classes, {', '.join(BUNDLED_IMAGES)}: bundled, no download"
        for name, images in KNOWN_IMAGES.items():
            yield f"  images in ten classes, {name}: {images.rows} of 28 x 28; mpicomp data fetch {name}"


def class_named(name: str) -> type | None:
    """The class called ``name``, ignoring case and underscores, or a user's own class; None if unknown."""
    if is_reference(name):
        return import_class(name)
    return next((cls for key, cls in NAMES.items() if _plain(key) == _plain(name)), None)


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _explained(cls: type) -> Iterator[str]:
    """Lines on each parameter of ``cls``: its meaning, its default, its allowed values."""
    shown = list(parameters(cls))
    width = max((len(parameter.name) for parameter in shown), default=0)
    for parameter in shown:
        default = "to be given" if parameter.default is None else f"default {parameter.default}"
        lines = [*wrap(parameter.meaning, 90), *wrap(f"{default}; allowed: {parameter.allowed}", 90)]
        for label, line in zip([parameter.name, *[""] * len(lines)], lines, strict=False):
            yield f"    {label:{width}}  {line}"


def _entry(cls: type) -> Iterator[str]:
    about = describe(cls)
    kinds = [k.__name__.lower() for k in (Unbiased, Contractive, Absolute) if issubclass(cls, k)]
    yield f"  {about.signature}{'  [' + ', '.join(kinds) + ']' if kinds else ''}"
    yield from (f"      {line}" for line in (about.summary, about.paper) if line)
    if issubclass(cls, Method) and cls.recalled:
        yield f"      from memory, not checked against the paper: {cls.recalled}"
