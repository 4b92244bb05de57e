"""Progress bars for long work, shown only if standard error is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mpicomp.kernels.loading import telling
from mpicomp.runtime import bars
from mpicomp.runtime.record import Row
from mpicomp.transports.launcher import launched_ranks

if TYPE_CHECKING:
    from mpicomp.lab.experiment.compare import Stage


@contextmanager
def rounds(total: int, watching: bool) -> Iterator[Any]:
    """Yield a ``progress`` of ``run`` that shows the round and the last |∇f|²; None if not ``watching``."""
    if not watching:
        yield None
        return
    with _display() as (display, task):
        state = bars.rounds(total)

        def advance(round: int, row: Row | None) -> None:
            done, of, text = state(round, row)
            display.update(task, completed=done, total=of, description=text)

        yield advance


@contextmanager
def stages(watching: bool) -> Iterator[Any]:
    """Yield a ``progress`` of ``compare`` that shows the current run; None if not ``watching``."""
    if not watching:
        yield None
        return
    with _display() as (display, task):

        def advance(stage: Stage, round: int, row: Row | None) -> None:
            display.update(task, completed=stage.number, total=stage.of, description=stage.what)

        yield advance


@contextmanager
def _display() -> Iterator[tuple[Any, Any]]:
    """A progress display on standard error, removed when the work is done, and its only task.

    Until the first round it shows what is being done (starting ranks, compiling), with a bar of no length.
    """
    ranks = launched_ranks() or 1
    with _progress() as display:
        task = display.add_task(f"starting {ranks} ranks" if ranks > 1 else "starting", total=None)
        with telling(lambda: display.update(task, description="compiling kernels, once on this machine")):
            yield display, task


def _progress() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), BarColumn(20), TimeRemainingColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=Console(stderr=True, force_terminal=True), transient=True)
