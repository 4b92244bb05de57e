"""The progress bar of ``run``, ``compare`` and ``tune`` in Python; the commands have another one.

In a notebook the bar is a piece of HTML that the kernel replaces; this needs no further package.  Elsewhere
it is a line on standard error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from time import perf_counter
from typing import Any

from mpicomp.base.checks import runs_later
from mpicomp.base.errors import ConfigError
from mpicomp.runtime.rows import Row

PATIENCE = 0.5  # seconds: shorter work shows no bar
APART = 0.1  # seconds from one change to the next


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook: IPython's shell then has a ``kernel``."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


@contextmanager
def shown(progress: Any, state: Callable[..., tuple[int, int, str]]) -> Iterator[Any]:
    """Yield the function to report progress to, or None for no reports.

    progress  a function: it is yielded itself.  True: a bar.  False: nothing.  None: a bar in a notebook only
    state     turns the arguments of a report into (number done, total, text) for the bar

    Raises ``ConfigError`` for any other ``progress``.
    """
    called = callable(progress) and not runs_later(progress)
    if not (called or progress is None or isinstance(progress, bool)):
        raise ConfigError(
            f"progress={progress!r}; allowed: True, False, None, or a function without async and yield."
        )
    if called:
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
        self._replace: Callable[[_Page], None] | None = None  # redraws the bar; None until it appears

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
    """The content of a bar, as text and as HTML; empty if the total is 0."""

    def __init__(self, done: int, total: int, text: str) -> None:
        self._done, self._total, self._text = done, total, text

    def __repr__(self) -> str:
        return f"{self._done}/{self._total} {self._text}".rstrip() if self._total else ""

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self._done}" max="{self._total}"></progress> '
        return bar + escape(repr(self)) if self._total else ""


def _notebook() -> Callable[[_Page], None]:
    """A function that redraws the bar in the output of the notebook's cell."""
    from IPython.display import display

    handle = display(_Page(0, 0, ""), display_id=True)
    return lambda page: handle.update(page)


def _terminal() -> Callable[[_Page], None]:
    """A function that redraws the bar on standard error, if this is a terminal, also through mpirun."""
    watched = sys.stderr.isatty() or "MPICOMP_TERMINAL" in os.environ

    def replace(page: _Page) -> None:
        if watched:
            sys.stderr.write(f"\r\x1b[2K{page!r}")
            sys.stderr.flush()

    return replace
