"""``plot`` of a run: figures are a layer above runs, and register here the function that draws them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_drawing: list[Callable[..., Any]] = []


def register(plot: Callable[..., Any]) -> None:
    """Draw runs by ``plot`` from now on."""
    _drawing[:] = [plot]


def plot(run: Any, **words: Any) -> Any:
    """``mpicomp.plot`` of one run, record or comparison; returns matplotlib's axes."""
    return _drawing[0](run, **words)
