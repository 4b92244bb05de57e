"""The work of one call of ``compare``: tune the methods, run each with every seed, keep what is done."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from mpicomp import kernels
from mpicomp.base.errors import DataError, DivergedError, Interrupted, RecordError, keeping
from mpicomp.base.files import write_json
from mpicomp.base.former import present_config
from mpicomp.lab.experiment.averaged import averaged_by
from mpicomp.lab.experiment.claim import open_comparison
from mpicomp.lab.experiment.folder import finish_comparison, finished, run_folder, write_tuning
from mpicomp.lab.experiment.lines import Outcome
from mpicomp.lab.experiment.results import Comparison
from mpicomp.lab.experiment.start import starting_point
from mpicomp.lab.experiment.suite import Entry, Suite, Task
from mpicomp.lab.experiment.trials import Tuning
from mpicomp.lab.experiment.tuning import tune
from mpicomp.methods import Method
from mpicomp.problems.base import fingerprint_of
from mpicomp.runtime.facts import changed_code, read_facts
from mpicomp.runtime.placement import Placement
from mpicomp.runtime.record import remove_run
from mpicomp.runtime.result import Run
from mpicomp.runtime.rows import Row
from mpicomp.runtime.run import run
from mpicomp.text.own_classes import code_of
from mpicomp.transports import Transport


class Stage(NamedTuple):
    """Run number ``number`` of ``of`` runs; ``what`` names its method, step and seed."""

    number: int
    of: int
    what: str


Progress = Callable[[Stage, int, Row | None], None]  # called with the round, and its row if one was recorded


class Job:
    """One call of ``compare``: the suite, its tasks, and how many runs are done; collective."""

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
