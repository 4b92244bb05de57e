"""Run a suite: tune the methods, then run each with every seed into a folder of its own.  Or run a study."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from mpicomp import kernels
from mpicomp.averaging import check_averaging
from mpicomp.base.blocks import Blocks
from mpicomp.base.checks import as_switch
from mpicomp.base.errors import (
    ConfigError,
    DataError,
    DivergedError,
    Interrupted,
    MpicompError,
    RecordError,
    keeping,
)
from mpicomp.base.files import as_path, as_path_or_none, write_json
from mpicomp.base.former import present_config
from mpicomp.lab.experiment.averaged import averaged_by
from mpicomp.lab.experiment.claim import open_comparison, open_study
from mpicomp.lab.experiment.folder import finish_comparison, finished, run_folder, write_tuning
from mpicomp.lab.experiment.lines import Outcome
from mpicomp.lab.experiment.results import Comparison
from mpicomp.lab.experiment.start import starting_point
from mpicomp.lab.experiment.study import Study
from mpicomp.lab.experiment.suite import Entry, Suite, Task
from mpicomp.lab.experiment.trials import Tuning
from mpicomp.lab.experiment.tuning import tune
from mpicomp.methods import Method
from mpicomp.problems.base import constants_of, fingerprint_of, parts_of
from mpicomp.runtime.alike import as_text, refuse_other_call, refuse_unlike
from mpicomp.runtime.facts import changed_code, read_facts
from mpicomp.runtime.loop import start_of
from mpicomp.runtime.placement import Placement
from mpicomp.runtime.record import remove_run
from mpicomp.runtime.result import Run
from mpicomp.runtime.rounds import check_device
from mpicomp.runtime.rows import Row
from mpicomp.runtime.run import left_in_order, run
from mpicomp.text.own_classes import code_of
from mpicomp.transports import Transport, connect


class Stage(NamedTuple):
    """Run number ``number`` of ``of`` runs; ``what`` names its method, step and seed."""

    number: int
    of: int
    what: str


Progress = Callable[[Stage, int, Row | None], None]  # called with the round, and its row if one was recorded

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
        return _Job(suite, work, folder, control, placement, progress).run(resume)


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
        return _Job(suite, work, None, control, placement, progress).tune(suite.entries[0])


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
                _Job(case.suite, tasks, folder / case.slug, own, placement, progress).run(None)


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


class _Job:
    """One call of ``compare``: the suite, its tasks, and how many runs are done."""

    def __init__(
        self,
        suite: Suite,
        work: list[Task],
        out: Path | None,
        control: Transport,
        placement: Placement,
        progress: Progress | None,
    ) -> None:
        self.suite, self.work, self.out = suite, work, out
        self.control, self.placement, self.progress = control, placement, progress
        self.x0 = control.ask_server(lambda: starting_point(suite.x0))
        self.data = control.ask_server(lambda: fingerprint_of(suite.problem))
        self.averaged = control.ask_server(lambda: averaged_by(placement, suite.problem, suite.workers))
        self.number, self.of = 0, _runs(suite, work)
        self.outcomes: list[Outcome] = []  # of the runs done here

    def run(self, resume: bool | None) -> Comparison:
        out, tunings = self.out, dict[str, Tuning]()
        if out is not None:
            tunings = self.control.ask_server(lambda: open_comparison(out, self.suite, resume, self.averaged))
        with keeping(lambda: Comparison(self.suite, tunings, self.outcomes)):
            self._run_all(tunings)
        if out is None:
            return Comparison(self.suite, tunings, self.outcomes)
        return self.control.ask_server(lambda: self._finish(out))

    def _finish(self, out: Path) -> Comparison:
        """Gather the results.  Raises ``RecordError`` if a run of this job is not there any more."""
        for entry, seeds in self.work:
            for folder in (run_folder(out, entry, seed) for seed in seeds):
                if not finished(folder):
                    raise RecordError(
                        f"{folder} holds no finished run any more: another job works in {out}, or somebody "
                        "has deleted it. Resume the comparison once nothing else writes there."
                    )
        return finish_comparison(out)

    def _run_all(self, tunings: dict[str, Tuning]) -> None:
        """Run each method with every seed; those to be tuned with the best step, see ``_tuned``."""
        suite = self.suite
        if self.placement.device == "cpu":  # the same kernels in every run and every part
            kernels.preload(_runs(suite, suite.tasks()) * suite.limits.rounds * suite.workers)
        for entry, seeds in self.work:
            method = entry.method if entry.tune is None else self._tuned(entry, tunings)
            for seed in seeds:
                self._record(entry, method, seed)

    def _tuned(self, entry: Entry, tunings: dict[str, Tuning]) -> Method:
        """The method of ``entry`` with its best step; ``tunings`` gets its tuning, if it lacks it."""
        if entry.label in tunings:
            self.number += tunings[entry.label].runs
        else:
            tunings[entry.label] = self.tune(entry)
            if self.out is not None:
                what = self.out, self.suite, entry, tunings[entry.label], self.averaged
                self.control.ask_server(lambda: write_tuning(*what))
        tuning = tunings[entry.label]
        # Tuning may skip planned runs, and add runs at an end of the range.
        self.of += tuning.runs - entry.trials * len(self.suite.seeds_to_tune)
        return entry.method.with_step(tuning.best.gamma)

    def tune(self, entry: Entry) -> Tuning:
        """Tune the method of ``entry``, which has a range to tune it in."""
        assert entry.tune is not None

        def attempt(scaled: Method, seed: int, max_bytes: int | None) -> Run:
            what = f"{entry.label}, step {scaled.step}, seed {seed}"
            return self._run(scaled, seed, what, max_bytes=max_bytes)

        suite = self.suite
        return tune(entry.method, entry.tune, suite.seeds_to_tune, attempt, suite.limits)

    def _record(self, entry: Entry, method: Method, seed: int) -> None:
        """Run ``method`` into its folder, if there is one, unless the folder holds that run already."""
        folder = None if self.out is None else run_folder(self.out, entry, seed)
        if folder is not None and not self.control.ask_server(partial(_cleared, folder, method, self.suite)):
            self.number += 1
            return
        try:
            done = self._run(method, seed, f"{entry.label}, seed {seed}", out=folder)
            self.outcomes.append(Outcome(entry.label, seed, done.rows, done.summary()))
        except DivergedError as error:
            summary = {"status": "diverged", "error": str(error)}
            self.outcomes.append(Outcome(entry.label, seed, error.so_far or [], summary))
            if folder is not None:
                self.control.ask_server(partial(write_json, folder / "summary.json", summary))

    def _check_data(self) -> None:
        """Raise ``DataError`` if a file of the problem has changed since the comparison began."""
        if self.suite.problem.fingerprint() != self.data:
            raise DataError(
                "the problem's data have changed since this comparison began, and all of its runs are on the "
                "same data. Put them back and resume, or begin anew in another folder."
            )

    def _run(self, method: Method, seed: int, what: str, **options: Any) -> Run:
        self.control.ask_server(self._check_data)
        self.number += 1
        stage = Stage(self.number, max(self.number, self.of), what)

        def report(round: int, row: Row | None) -> None:
            if self.progress is not None:
                self.progress(stage, round, row)

        options = self.suite.options() | asdict(self.placement) | options
        result = run(method, self.suite.problem, seed=seed, x0=self.x0, progress=report, **options)
        if result.status == "interrupted":
            raise Interrupted(result.rows)
        return result


def _runs(suite: Suite, work: list[Task]) -> int:
    """The number of runs in ``work``, tuning included."""
    trials = sum(entry.trials for entry, _ in work)
    return trials * len(suite.seeds_to_tune) + sum(len(seeds) for _, seeds in work)


def _cleared(folder: Path, method: Method, suite: Suite) -> bool:
    """Whether the run of ``method`` in ``folder`` is still to be done; if so, an unfinished one is deleted.

    Raises ``RecordError`` if the folder holds a finished run of another method, step size or limit.
    """
    if finished(folder):
        facts = read_facts(folder)
        held = present_config(facts.get("asked", {}))
        wanted = {"method": repr(method)} | suite.options()
        for name, value in held.items():
            if name in wanted and value != wanted[name]:
                raise RecordError(
                    f"{folder} holds a run with {name} = {value}, and the comparison now has {wanted[name]}. "
                    "Delete that folder, or choose another --out."
                )
        if changed := changed_code(facts, code_of(method, suite.problem)):
            warnings.warn(
                f"{changed} has changed since runs in {folder.parent}, which are kept: delete their folders "
                "to run them again.",
                stacklevel=2,
            )
        return False
    remove_run(folder)
    return True
