"""Methods that follow from others of their class: a class that changes those does not inherit them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
