"""``Run.plot`` without an import of matplotlib: the figure module registers its drawing function here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_drawing: list[Callable[..., Any]] = []


def register(plot: Callable[..., Any]) -> None:
    """Use ``plot`` to draw runs from now on."""
    _drawing[:] = [plot]


def plot(run: Any, **words: Any) -> Any:
    """``mpicomp.plot`` of one run, record or comparison; returns matplotlib's axes."""
    return _drawing[0](run, **words)
