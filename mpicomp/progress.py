"""A progress bar for long work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mpicomp.record import Row


@contextmanager
def bar(rounds: int, watching: bool) -> Iterator[Callable[[int, Row | None], None] | None]:
    """A callback that shows the round and the last |∇f|² on standard error, or None if nobody watches."""
    if not watching:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True, force_terminal=True), transient=True) as display:
        task = display.add_task("", total=rounds)

        def advance(round: int, row: Row | None) -> None:
            text = {} if row is None else {"description": f"|∇f|² = {row.grad_norm_sq:.2e}"}
            display.update(task, completed=round, **text)  # type: ignore[arg-type]

        yield advance
