"""Former names: texts and records that hold them are read as if they held the present ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FORMER = {"Sparse": "Lossless"}  # the former name of a class in Python: the present one
SETTINGS = {"shards": "blocks"}  # the same for the keywords of ``run``

_CALLED = re.compile(rf"\b({'|'.join(FORMER)})\(")


def present_name(name: str) -> str:
    """The present name of the class that a text calls ``name``; ``name`` itself if it has not changed."""
    return next((new for old, new in FORMER.items() if old.lower() == name.lower()), name)


def present_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A record's ``config`` with the present names of its settings, and of the classes in its texts."""
    return {
        SETTINGS.get(name, name): present_repr(value) if isinstance(value, str) else value
        for name, value in config.items()
    }


def present_repr(text: str) -> str:
    """``text``, the ``repr`` of an object in a record, with the present names of the classes in it."""
    return _CALLED.sub(lambda found: f"{FORMER[found[1]]}(", text)
