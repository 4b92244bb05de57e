"""Run a suite, or all suites of a study: check it on all ranks before the first run, then do its work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from mpicomp.averaging import check_averaging
from mpicomp.base.blocks import Blocks
from mpicomp.base.checks import as_switch
from mpicomp.base.errors import ConfigError, MpicompError
from mpicomp.base.files import as_path, as_path_or_none
from mpicomp.lab.experiment.claim import open_study
from mpicomp.lab.experiment.job import Job, Progress
from mpicomp.lab.experiment.results import Comparison
from mpicomp.lab.experiment.start import starting_point
from mpicomp.lab.experiment.study import Study
from mpicomp.lab.experiment.suite import Suite, Task
from mpicomp.lab.experiment.trials import Tuning
from mpicomp.problems.base import constants_of, parts_of
from mpicomp.runtime.alike import as_text, refuse_other_call, refuse_unlike
from mpicomp.runtime.loop import start_of
from mpicomp.runtime.placement import Placement
from mpicomp.runtime.rounds import check_device
from mpicomp.runtime.run import left_in_order
from mpicomp.transports import Transport, connect

WHOLE = slice(None)
HERE = Placement()


def compare(
    suite: Suite,
    out: str | Path | None,
    *,
    resume: bool | None = False,
    part: slice = WHOLE,
    placement: Placement = HERE,
    progress: Progress | None = None,
) -> Comparison:
    """Run ``suite`` into the folder ``out``, in this process or on the ranks of the MPI job around it.

    Without a folder, the comparison is in memory only.

    Collective.  The server writes the files; every rank returns the comparison.  A run that diverges is
    recorded as diverged; any other error ends the comparison.

    resume  True continues the interrupted comparison in ``out``: finished runs are kept, other runs start
            afresh.  False starts a new one.  None continues if ``out`` holds a comparison, else starts.
    part    the share of the suite's tasks that this job runs, where several jobs share the work; see
            ``parse_part``.

    Raises ``ConfigError`` before the first run if a method is refused, and ``Interrupted``, a
    ``KeyboardInterrupt``, on all ranks if a signal asked to stop.  Raises ``DataError`` between two runs if
    a file of data has changed.
    """
    resume = None if resume is None else as_switch("resume", resume)
    if out is None and resume:
        raise ConfigError("resume needs the folder of the comparison to continue: give out.")
    folder = as_path_or_none("out", out)
    work = suite.tasks()[part]
    given = {"out": folder and str(folder), "resume": resume, "part": part}
    with _control(suite, placement, _facts(suite) | given) as control:
        control.ask_server(lambda: _check(suite, work, placement))
        return Job(suite, work, folder, control, placement, progress).run(resume)


def tune_first(
    suite: Suite,
    *,
    placement: Placement = HERE,
    progress: Progress | None = None,
) -> Tuning:
    """Tune the first method of ``suite``, which has a range to tune it in.  Collective, like ``compare``."""
    work = suite.tasks()[:1]
    with _control(suite, placement, _facts(suite), "mpicomp.tune") as control:
        control.ask_server(lambda: _check(suite, work, placement))
        return Job(suite, work, None, control, placement, progress).tune(suite.entries[0])


def compare_all(
    study: Study,
    out: str | Path,
    *,
    resume: bool | None = False,
    part: slice = WHOLE,
    placement: Placement = HERE,
    progress: Progress | None = None,
) -> None:
    """Run every case of ``study`` into its folder below ``out``; otherwise like ``compare``."""
    folder = as_path("out", out)
    share = [(case, task) for case in study.cases for task in case.suite.tasks()][part]
    work = [(case, [task for of, task in share if of is case]) for case in study.cases]

    def check_and_open() -> None:
        for case, tasks in work:
            _check(case.suite, tasks, placement, f"{case.label}: ")
        open_study(folder, study, resume)

    told: dict[str, object] = {"out": str(folder), "resume": resume, "part": part}
    for case in study.cases:
        told |= {f"{case.label}: {name}": fact for name, fact in _facts(case.suite).items()}
    with _control(study.cases[0].suite, placement, told) as control:
        control.ask_server(check_and_open)
        for case, tasks in work:
            with _control(case.suite, placement, {}) as own:
                Job(case.suite, tasks, folder / case.slug, own, placement, progress).run(None)


def _facts(suite: Suite) -> dict[str, object]:
    """The fields of ``suite``, but for the problem, which each run compares with its data."""
    return {f.name: getattr(suite, f.name) for f in fields(suite) if f.compare and f.name != "problem"}


@contextmanager
def _control(
    suite: Suite, placement: Placement, facts: Mapping[str, object], call: str = "mpicomp.compare"
) -> Iterator[Transport]:
    """A transport by which the server shares with the other ranks the state of the folder.

    Raises ``ConfigError`` on all ranks if they differ in ``facts``, or in ``placement`` but for what may
    differ between ranks.
    """
    alike = replace(placement, cuda_aware="ask", stall_timeout=None)
    control = connect(suite.workers, placement.dedicated)
    with left_in_order(control, MpicompError, KeyboardInterrupt):
        refuse_other_call(control, call)
        told: Any = control.collect({k: as_text(fact) for k, fact in {**facts, "placement": alike}.items()})
        control.ask_server(lambda: refuse_unlike(told))
        yield control


def _check(suite: Suite, work: list[Task], placement: Placement, of: str = "") -> None:
    """Raise ``ConfigError`` if no run can start, or the problem or ``placement`` refuses a method.

    ``of`` begins the message, before the method's label.
    """
    try:
        start_of(suite.problem, starting_point(suite.x0))
    except ConfigError as error:
        raise ConfigError(f"{of}{error}") from None
    problem, n, parts = suite.problem, suite.workers, parts_of(suite.problem)
    d, constants = problem.dimension(), cache(lambda: constants_of(problem, n))
    cut = placement.block_count(n)
    blocks = Blocks.cut(parts, cut) if cut > 1 else None
    for entry, _ in work:
        try:
            method = entry.method.bound(parts).resolve(constants, d, n, blocks)
            check_averaging(placement.server, method, blocks)
            if placement.device != "cpu":
                check_device(method)
        except MpicompError as error:
            raise ConfigError(f"{of}{entry.label}: {error}") from None
