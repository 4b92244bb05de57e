"""Import classes and functions when they are first used, so that a program loads only those that it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


class Table(Mapping[str, type[T]]):
    """The classes of one kind by their names in texts; ``table["marina"]`` imports the module of MARINA.

    ``places`` maps each name to "module:Class", a module of ``package``; ``add`` adds one of any package.
    """

    def __init__(self, package: str, places: Mapping[str, str]) -> None:
        self._places = {name: f"{package}.{place}" for name, place in places.items()}

    def add(self, name: str, place: str) -> None:
        self._places[name] = place

    def __getitem__(self, name: str) -> type[T]:
        return found(self._places[name])

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def name_of(self, cls: type) -> str | None:
        """The name of ``cls``, or None if the table does not have it; nothing is imported."""
        place = f"{cls.__module__}:{cls.__qualname__}"
        return next((name for name, known in self._places.items() if known == place), None)

    @property
    def places(self) -> dict[str, str]:
        """The name of each class in Python, and its "module:Class"."""
        return {place.rpartition(":")[2]: place for place in self._places.values()}


def found(place: str) -> Any:
    """Import and return the object "module:name", or the module "module"."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)


def importing(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and ``__dir__`` of ``package``, which import its attributes on first use.

    ``places`` maps each attribute to "module:name" or "module".  An attribute is kept once it is imported.
    """

    def attribute(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = found(places[name])
        setattr(sys.modules[package], name, value)
        return value

    return attribute, lambda: sorted({*vars(sys.modules[package]), *places})
