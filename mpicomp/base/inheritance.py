"""Replace inherited methods that no longer fit a subclass, and convert numpy's values in dataclass fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from mpicomp.base.checks import plain_value


def depth(cls: type, name: str) -> int:
    """The index in ``cls.__mro__`` of the first class that defines ``name``; 0 is ``cls`` itself."""
    return next(i for i, kind in enumerate(cls.__mro__) if name in vars(kind))


def outdated(cls: type, name: str, *others: str) -> bool:
    """Whether ``name`` is inherited from further up the bases than one of ``others``, which it has to fit."""
    return depth(cls, name) > min(depth(cls, other) for other in others)


def renew(cls: type, name: str, *others: str, plain: Callable[..., Any]) -> None:
    """Set ``cls.name`` to ``plain`` if the inherited one is ``outdated``."""
    if outdated(cls, name, *others):
        setattr(cls, name, plain)


def hold_plain_values(cls: Any) -> None:
    """Convert numpy's numbers and texts in the fields of ``cls``, a frozen dataclass, to Python's.

    They are converted before ``__post_init__`` of ``cls`` checks them.  A class that does not define
    ``__post_init__`` is left as it is.
    """
    check = vars(cls).get("__post_init__")
    if check is None:
        return

    def __post_init__(self: Any) -> None:
        for f in fields(self):
            given = getattr(self, f.name)
            if (plain := plain_value(given)) is not given:
                object.__setattr__(self, f.name, plain)
        check(self)

    cls.__post_init__ = __post_init__
