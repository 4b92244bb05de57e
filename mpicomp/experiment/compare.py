"""Running a suite: tune, then every method with every seed, each into a folder of its own; and a study."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from mpicomp import kernels
from mpicomp.base.errors import ConfigError, DivergedError, MpicompError, RecordError
from mpicomp.base.files import read_json, write_json
from mpicomp.experiment.results import (
    Comparison,
    finish_comparison,
    finished,
    open_comparison,
    open_study,
    run_folder,
    write_tuning,
)
from mpicomp.experiment.study import Study
from mpicomp.experiment.suite import Entry, Part, Piece, Suite
from mpicomp.experiment.tuning import Tuning, tune
from mpicomp.methods import Method
from mpicomp.runtime.placement import Placement
from mpicomp.runtime.record import Row
from mpicomp.runtime.run import Run, run
from mpicomp.transports import Transport, connect


@dataclass(frozen=True)
class Stage:
    """Run ``number`` out of ``of``, and what it is for."""

    number: int
    of: int
    what: str


Progress = Callable[[Stage, int, Row | None], None]  # with the round, and the row if one was recorded

WHOLE = Part(1, 1)


def compare(
    suite: Suite,
    out: str | Path,
    *,
    resume: bool | None = False,
    part: Part = WHOLE,
    dedicated: bool = False,
    device: str = "cpu",
    cuda_aware: str = "ask",
    progress: Progress | None = None,
) -> Comparison:
    """Run ``suite`` into the folder ``out``, here or on the ranks of the MPI job we are in.

    Collective; every rank gets the comparison, the server alone writes.  A run that diverges is
    recorded as such, any other error ends the comparison.  ``resume`` continues one that was
    interrupted: finished runs are kept, the others start afresh; None does so if there is one.  Of a
    comparison that is split into parts, each a job of its own, only ``part`` is run.  ``dedicated``,
    ``device`` and ``cuda_aware`` are those of ``run``.  Raises ``ConfigError`` before anything is run if a
    method is refused, and ``KeyboardInterrupt`` on all ranks if a signal asked to stop.
    """
    placement = Placement(dedicated, device, cuda_aware)
    work = part.of_all(suite.pieces())
    with _control(suite, dedicated) as control:
        control.ask_server(lambda: _check(suite, work))
        return _Job(suite, work, Path(out), control, placement, progress).run(resume)


def compare_all(
    study: Study,
    out: str | Path,
    *,
    resume: bool | None = False,
    part: Part = WHOLE,
    dedicated: bool = False,
    device: str = "cpu",
    cuda_aware: str = "ask",
    progress: Progress | None = None,
) -> None:
    """Run every case of ``study`` into its folder below ``out``; otherwise like ``compare``."""
    folder = Path(out)
    share = part.of_all([(case, piece) for case in study.cases for piece in case.suite.pieces()])
    work = [(case, [piece for of, piece in share if of is case]) for case in study.cases]
    placement = Placement(dedicated, device, cuda_aware)

    def check_and_open() -> None:
        for case, pieces in work:
            _check(case.suite, pieces, f"{case.label}: ")
        open_study(folder, study, resume)

    with _control(study.cases[0].suite, dedicated) as control:
        control.ask_server(check_and_open)
        for case, pieces in work:
            with _control(case.suite, dedicated) as own:
                _Job(case.suite, pieces, folder / case.slug, own, placement, progress).run(None)


@contextmanager
def _control(suite: Suite, dedicated: bool) -> Iterator[Transport]:
    """How the server tells the others what it finds on the disk.

    Closed at the end, and after an error that all ranks have; after any other the job is aborted.
    """
    control = connect(suite.workers, dedicated)
    try:
        yield control
    except (MpicompError, KeyboardInterrupt):  # the same on all ranks
        control.close()
        raise
    except BaseException:
        control.abort()
        raise
    control.close()


def _check(suite: Suite, work: list[Piece], of: str = "") -> None:
    """Raise what a method is refused for before any of them has run; ``of`` comes before its label."""
    problem, n = suite.problem, suite.workers
    d, constants = problem.dimension(), cache(lambda: problem.constants(n))
    for entry, _ in work:
        try:
            entry.method.resolve(constants, d, n)
        except MpicompError as error:
            raise ConfigError(f"{of}{entry.label}: {error}") from None


class _Job:
    """A suite at work."""

    def __init__(
        self,
        suite: Suite,
        work: list[Piece],
        out: Path,
        control: Transport,
        placement: Placement,
        progress: Progress | None,
    ) -> None:
        self.suite, self.work, self.out = suite, work, out
        self.control, self.placement, self.progress = control, placement, progress
        self.number, self.of = 0, _runs(suite, work)

    def run(self, resume: bool | None) -> Comparison:
        tunings = self.control.ask_server(lambda: open_comparison(self.out, self.suite, resume))
        if self.placement.device == "cpu":  # for the first run as for the last, and in every part
            kernels.expect(_runs(self.suite, self.suite.pieces()) * self.suite.rounds * self.suite.workers)
        for entry, seeds in self.work:
            method = entry.method
            if entry.tune is not None:
                tuning = tunings.get(entry.label)
                if tuning is not None:
                    self.number += tuning.runs
                else:
                    tuning = self._tune(entry.label, method, entry.tune)
                    self.control.ask_server(partial(write_tuning, self.out, self.suite, entry, tuning))
                # Some were not needed, others were added at an end of the range.
                self.of += tuning.runs - entry.trials * len(self.suite.seeds_to_tune)
                method = method.with_step(tuning.best.gamma)
            for seed in seeds:
                self._record(entry, method, seed)
        return self.control.ask_server(lambda: finish_comparison(self.out))

    def _tune(self, label: str, method: Method, exponents: tuple[int, int]) -> Tuning:
        def attempt(scaled: Method, seed: int, max_bytes: int | None) -> Run:
            what = f"{label}, step {scaled.step}, seed {seed}"
            return self._run(scaled, seed, what, max_bytes=max_bytes)

        return tune(method, exponents, self.suite.seeds_to_tune, self.suite.max_bytes, attempt)

    def _record(self, entry: Entry, method: Method, seed: int) -> None:
        """Run ``method`` into its folder, unless that has been done."""
        folder = run_folder(self.out, entry, seed)
        if not self.control.ask_server(lambda: _cleared(folder, method, self.suite)):
            self.number += 1
            return
        try:
            self._run(method, seed, f"{entry.label}, seed {seed}", out=folder)
        except DivergedError as error:
            summary = {"status": "diverged", "error": str(error)}
            self.control.ask_server(lambda: write_json(folder / "summary.json", summary))

    def _run(self, method: Method, seed: int, what: str, **options: Any) -> Run:
        self.number += 1
        stage = Stage(self.number, max(self.number, self.of), what)

        def report(round: int, row: Row | None) -> None:
            if self.progress is not None:
                self.progress(stage, round, row)

        options = self.suite.limits() | asdict(self.placement) | options
        result = run(method, self.suite.problem, seed=seed, progress=report, **options)
        if result.status == "interrupted":
            raise KeyboardInterrupt
        return result


def _runs(suite: Suite, work: list[Piece]) -> int:
    """How many runs that is, those of tuning included."""
    trials = sum(entry.trials for entry, _ in work)
    return trials * len(suite.seeds_to_tune) + sum(len(seeds) for _, seeds in work)


def _cleared(folder: Path, method: Method, suite: Suite) -> bool:
    """Whether the run of ``method`` in ``folder`` is still to be done; what there is of it is cleared away.

    Raises ``RecordError`` if a finished run is there of another method, step size or limit.
    """
    if finished(folder):
        held = read_json(folder / "run.json").get("asked", {})
        wanted = {"method": repr(method)} | suite.limits()
        for name, value in held.items():
            if name in wanted and value != wanted[name]:
                raise RecordError(
                    f"{folder} holds a run with {name} = {value}, and the comparison now has {wanted[name]}. "
                    "Delete that folder, or choose another --out."
                )
        return False
    shutil.rmtree(folder, ignore_errors=True)
    return True
