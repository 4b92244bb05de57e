"""A bar while ``run``, ``compare`` or ``tune`` is under way in Python; the commands have one of their own.

In a notebook it is a piece of HTML that the kernel replaces, which needs no further package.  Elsewhere it is
a line on standard error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from time import perf_counter
from typing import Any

from mpicomp.base.errors import ConfigError
from mpicomp.runtime.record import Row

PATIENCE = 0.5  # seconds: shorter work shows no bar
APART = 0.1  # seconds from one change to the next


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, whose shell knows its kernel."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


@contextmanager
def shown(progress: Any, state: Callable[..., tuple[int, int, str]]) -> Iterator[Any]:
    """The function that reports progress, or None: ``progress`` itself, if it is a function.

    True stands for a bar, False for nothing, and None for a bar in a notebook.  ``state`` turns the
    arguments of a report into the number done, the total, and a text.  Raises ``ConfigError`` for any other
    ``progress``.
    """
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise ConfigError(f"progress={progress!r}; allowed: True, False, None, or a function.")
    if callable(progress):
        yield progress
    elif in_notebook() if progress is None else progress:
        bar = Bar()
        try:
            yield lambda *report: bar.update(*state(*report))
        finally:
            bar.close()
    else:
        yield None


def rounds(total: int) -> Callable[[int, Row | None], tuple[int, int, str]]:
    """The ``state`` of one run of ``total`` rounds: its text is the last |∇f|²."""
    text = ""

    def state(round: int, row: Row | None) -> tuple[int, int, str]:
        nonlocal text
        if row is not None and row.grad_norm_sq is not None:
            text = f"|∇f|² = {row.grad_norm_sq:.2e}"
        return round, total, text

    return state


class Bar:
    """A bar that appears after half a second, changes ten times a second at most, and is gone at the end."""

    def __init__(self) -> None:
        self._due = perf_counter() + PATIENCE
        self._replace: Callable[[_Page], None] | None = None  # there is a bar

    def update(self, done: int, total: int, text: str) -> None:
        if perf_counter() < self._due:
            return
        self._due = perf_counter() + APART
        page = _Page(done, total, text)
        if self._replace is None:
            self._replace = _notebook() if in_notebook() else _terminal()
        self._replace(page)

    def close(self) -> None:
        if self._replace is not None:
            self._replace(_Page(0, 0, ""))


class _Page:
    """What a bar shows, as text and as HTML; nothing if there is no total."""

    def __init__(self, done: int, total: int, text: str) -> None:
        self._done, self._total, self._text = done, total, text

    def __repr__(self) -> str:
        return f"{self._done}/{self._total} {self._text}".rstrip() if self._total else ""

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self._done}" max="{self._total}"></progress> '
        return bar + escape(repr(self)) if self._total else ""


def _notebook() -> Callable[[_Page], None]:
    """Replaces one output of the cell."""
    from IPython.display import display

    handle = display(_Page(0, 0, ""), display_id=True)
    return lambda page: handle.update(page)


def _terminal() -> Callable[[_Page], None]:
    """Replaces the line on standard error, if that ends in a terminal, directly or through mpirun's pipes."""
    watched = sys.stderr.isatty() or "MPICOMP_TERMINAL" in os.environ

    def replace(page: _Page) -> None:
        if watched:
            sys.stderr.write(f"\r\x1b[2K{page!r}")
            sys.stderr.flush()

    return replace
