"""Progress bars for long work, shown only if standard error is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from mpicomp.kernels.loading import telling
from mpicomp.runtime import bars
from mpicomp.transports.launcher import launched_ranks


def rounds(total: int, watching: bool) -> AbstractContextManager[Any]:
    """Yield a ``progress`` of ``run`` that shows the round and the last |∇f|²; None if not ``watching``."""
    return _shown(bars.rounds(total)) if watching else nullcontext()


def stages(watching: bool) -> AbstractContextManager[Any]:
    """Yield a ``progress`` of ``compare`` that shows the current run; None if not ``watching``."""
    return _shown(lambda stage, round, row: stage) if watching else nullcontext()


@contextmanager
def _shown(state: Callable[..., tuple[int, int, str]]) -> Iterator[Any]:
    """Show reports on standard error, as ``state`` turns them into (number done, total, text).

    Until the first report it shows what is being done (starting ranks, compiling), with a bar of no length.
    """
    ranks = launched_ranks() or 1
    with _progress() as display:
        task = display.add_task(f"starting {ranks} ranks" if ranks > 1 else "starting", total=None)

        def advance(*report: Any) -> None:
            done, of, text = state(*report)
            display.update(task, completed=done, total=of, description=text)

        with telling(lambda: display.update(task, description="compiling kernels, once on this machine")):
            yield advance


def _progress() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), BarColumn(20), TimeRemainingColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=Console(stderr=True, force_terminal=True), transient=True)
