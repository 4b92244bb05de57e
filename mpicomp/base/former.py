"""Former names of classes: texts and records that hold them are read as if they held the present ones."""

from __future__ import annotations

import re

FORMER = {"Sparse": "Lossless"}  # the former name in Python: the present one

_CALLED = re.compile(rf"\b({'|'.join(FORMER)})\(")


def present_name(name: str) -> str:
    """The present name of the class that a text calls ``name``; ``name`` itself if it has not changed."""
    return next((new for old, new in FORMER.items() if old.lower() == name.lower()), name)


def present_repr(text: str) -> str:
    """``text``, the ``repr`` of an object in a record, with the present names of the classes in it."""
    return _CALLED.sub(lambda found: f"{FORMER[found[1]]}(", text)
