"""The lines of `mpicomp list`.  Papers are cited from memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mpicomp.compressors import COMPRESSORS, Absolute, Contractive, Unbiased
from mpicomp.config import describe
from mpicomp.data import BUNDLED, BUNDLED_IMAGES, KNOWN, KNOWN_IMAGES
from mpicomp.methods import METHODS, Method
from mpicomp.own_classes import import_class, is_reference
from mpicomp.problems import PROBLEMS


def catalogue(kind: str | None) -> Iterator[str]:
    """Lines on every entry of ``kind``, or of all kinds, or on the user's own class that ``kind`` names."""
    if kind is not None and is_reference(kind):
        yield from _entry(import_class(kind))
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


def _entry(cls: type) -> Iterator[str]:
    about = describe(cls)
    kinds = [k.__name__.lower() for k in (Unbiased, Contractive, Absolute) if issubclass(cls, k)]
    yield f"  {about.signature}{'  [' + ', '.join(kinds) + ']' if kinds else ''}"
    yield from (f"      {line}" for line in (about.summary, about.paper) if line)
    if issubclass(cls, Method) and cls.recalled:
        yield f"      from memory, not checked against the paper: {cls.recalled}"
