"""Running a suite: tune, then every method with every seed, each into a folder of its own; and a study."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mpicomp.errors import DivergedError, MpicompError
from mpicomp.files import read_json, write_json
from mpicomp.methods import Method
from mpicomp.record import Row
from mpicomp.results import (
    Comparison,
    finish_comparison,
    open_comparison,
    open_study,
    run_folder,
    write_tunings,
)
from mpicomp.run import Run, run
from mpicomp.study import Study
from mpicomp.suite import Entry, Suite
from mpicomp.transports import Transport, connect
from mpicomp.tuning import Tuning, tune

T = TypeVar("T")


@dataclass(frozen=True)
class Stage:
    """Run ``number`` out of ``of``, and what it is for."""

    number: int
    of: int
    what: str


Progress = Callable[[Stage, int, Row | None], None]  # with the round, and the row if one was recorded


def compare(
    suite: Suite,
    out: str | Path,
    *,
    resume: bool = False,
    dedicated: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Run ``suite`` into the folder ``out``, here or on the ranks of the MPI job we are in.

    Collective; every rank gets the comparison, the server alone writes.  A run that diverges is
    recorded as such, any other error ends the comparison.  ``resume`` continues one that was
    interrupted: finished runs are kept, the others start afresh.  Raises ``KeyboardInterrupt`` on all
    ranks if a signal asked to stop.
    """
    control = connect(suite.workers, dedicated)
    try:
        comparison = _Job(suite, Path(out), control, dedicated, progress).run(resume)
    except (MpicompError, KeyboardInterrupt):  # the same on all ranks
        control.close()
        raise
    except BaseException:
        control.abort()
        raise
    control.close()
    return comparison


def compare_all(
    study: Study,
    out: str | Path,
    *,
    resume: bool = False,
    dedicated: bool = False,
    progress: Progress | None = None,
) -> None:
    """Run every case of ``study`` into its folder below ``out``; otherwise like ``compare``."""
    folder = Path(out)
    control = connect(study.cases[0].suite.workers, dedicated)
    try:
        control.together(lambda: open_study(folder, study, resume) if control.is_server else None)
        for case in study.cases:
            place = folder / case.slug
            begun = control.tell(
                str(int((place / "suite.toml").exists())).encode() if control.is_server else None
            )
            compare(case.suite, place, resume=begun == b"1", dedicated=dedicated, progress=progress)
    finally:
        control.close()


class _Job:
    """A suite at work.  ``control`` is how the server tells the others what it finds on the disk."""

    def __init__(
        self, suite: Suite, out: Path, control: Transport, dedicated: bool, progress: Progress | None
    ) -> None:
        self.suite, self.out, self.dedicated, self.progress = suite, out, dedicated, progress
        self.control = control
        trials = sum(hi - lo + 1 for lo, hi in (e.tune for e in suite.entries if e.tune))
        self.number, self.of = 0, trials + len(suite.entries) * len(suite.seeds)

    def run(self, resume: bool) -> Comparison:
        tunings = self._on_server(lambda: open_comparison(self.out, self.suite, resume))
        for entry in self.suite.entries:
            method = entry.method
            if entry.tune is not None:
                if entry.label in tunings:
                    self.number += len(tunings[entry.label].trials)
                else:
                    tunings[entry.label] = self._tune(entry.label, method, entry.tune)
                    self._on_server(lambda: write_tunings(self.out, tunings))
                method = method.with_step(tunings[entry.label].best.gamma)
            for seed in self.suite.seeds:
                self._record(entry, method, seed)
        return self._on_server(lambda: finish_comparison(self.out))

    def _tune(self, label: str, method: Method, exponents: tuple[int, int]) -> Tuning:
        def attempt(scaled: Method, max_bytes: int | None) -> Run:
            what = f"{label}, step {scaled.step}"
            return self._run(scaled, self.suite.seeds[0], what, max_bytes=max_bytes)

        return tune(method, exponents, self.suite.max_bytes, attempt)

    def _record(self, entry: Entry, method: Method, seed: int) -> None:
        """Run ``method`` into its folder, unless that has been done."""
        folder = run_folder(self.out, entry, seed)
        if self._on_server(lambda: _finished(folder)):
            self.number += 1
            return
        try:
            self._run(method, seed, f"{entry.label}, seed {seed}", out=folder)
        except DivergedError as error:
            summary = {"status": "diverged", "error": str(error)}
            self._on_server(lambda: write_json(folder / "summary.json", summary))

    def _run(self, method: Method, seed: int, what: str, **options: Any) -> Run:
        self.number += 1
        stage = Stage(self.number, self.of, what)

        def report(round: int, row: Row | None) -> None:
            if self.progress is not None:
                self.progress(stage, round, row)

        options = self.suite.limits() | options
        result = run(
            method, self.suite.problem, seed=seed, dedicated=self.dedicated, progress=report, **options
        )
        if result.status == "interrupted":
            raise KeyboardInterrupt
        return result

    def _on_server(self, action: Callable[[], T]) -> T:
        """What ``action`` gives on the server, on every rank."""
        result = self.control.together(lambda: action() if self.control.is_server else None)
        told = self.control.tell(pickle.dumps(result) if self.control.is_server else None)
        return pickle.loads(told)


def _finished(folder: Path) -> bool:
    """Whether the run in ``folder`` came to its end; if not, what there is of it is cleared away."""
    if read_json(folder / "summary.json").get("status", "interrupted") != "interrupted":
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False
