"""Progress bars for long work, shown only if standard error is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mpicomp.runtime.record import Row

if TYPE_CHECKING:
    from mpicomp.experiment.compare import Stage


@contextmanager
def rounds(total: int, watching: bool) -> Iterator[Any]:
    """A callback for ``run`` that shows the round and the last |∇f|², or None if ``watching`` is false."""
    if not watching:
        yield None
        return
    with _display() as display:
        task = display.add_task("", total=total)

        def advance(round: int, row: Row | None) -> None:
            seen = None if row is None else row.grad_norm_sq
            text = {} if seen is None else {"description": f"|∇f|² = {seen:.2e}"}
            display.update(task, completed=round, **text)

        yield advance


@contextmanager
def stages(watching: bool) -> Iterator[Any]:
    """A callback for ``compare`` that shows the run under way, or None if ``watching`` is false."""
    if not watching:
        yield None
        return
    with _display() as display:
        task = display.add_task("")

        def advance(stage: Stage, round: int, row: Row | None) -> None:
            display.update(task, completed=stage.number, total=stage.of, description=stage.what)

        yield advance


def _display() -> Any:
    """A progress display on standard error, removed when the work is done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=Console(stderr=True, force_terminal=True), transient=True)
