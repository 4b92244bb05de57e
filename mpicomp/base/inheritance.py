"""Inheritance: methods that follow from others of their class, and fields that hold Python's values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from mpicomp.base.checks import plain_value


def depth(cls: type, name: str) -> int:
    """How many of its bases, in the order of inheritance, lie before the one whose ``name`` the class has."""
    return next(i for i, kind in enumerate(cls.__mro__) if name in vars(kind))


def outdated(cls: type, name: str, *others: str) -> bool:
    """Whether ``cls`` has ``name``, which follows from ``others``, from further up than one of these."""
    return depth(cls, name) > min(depth(cls, other) for other in others)


def renew(cls: type, name: str, *others: str, plain: Callable[..., Any]) -> None:
    """Let ``cls`` have ``plain`` for ``name``, if the one that it has inherited is outdated."""
    if outdated(cls, name, *others):
        setattr(cls, name, plain)


def hold_plain_values(cls: Any) -> None:
    """Let objects of ``cls``, a frozen dataclass, hold Python's numbers and texts where given numpy's.

    They are converted before ``__post_init__`` of ``cls`` checks them.  A class without checks of its own has
    those that it inherits, or takes what it is given.
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
