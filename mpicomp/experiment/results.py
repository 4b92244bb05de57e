"""The folder of a comparison.

========================  ===================================================
suite.toml                the suite
runs/<label>/tuning.json  every step size that was tried, and which was kept
runs/<label>/seed-<s>     the run of that method with that seed; see ``record``
tuning.json               what was tuned, by label
rows.csv                  the rows of all runs, with label and seed
========================  ===================================================

Jobs that share the work write below runs/ only, each into folders of its own, before one of them, or
each with what it finds, gathers the two files at the end.

A study's folder has study.toml and such a folder for each case.  ``experiment.report`` adds the tables
and the figure.
"""

from __future__ import annotations

import csv
import io
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from mpicomp.base.errors import RecordError
from mpicomp.base.files import present, read_json, write_json, write_text
from mpicomp.experiment.study import Study, load
from mpicomp.experiment.suite import Entry, Suite
from mpicomp.experiment.suite_file import load_suite
from mpicomp.experiment.tuning import Tuning
from mpicomp.runtime.record import Row, read_rows


@dataclass(frozen=True)
class Outcome:
    """One run, as its folder tells it.  ``summary`` is empty while the run is under way."""

    label: str
    seed: int
    rows: list[Row]
    summary: dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """All of it.  ``tunings`` has the methods that were tuned, by label."""

    suite: Suite
    tunings: dict[str, Tuning]
    outcomes: list[Outcome]


def run_folder(out: Path, entry: Entry, seed: int) -> Path:
    """Where the run of that method with that seed is."""
    return out / "runs" / entry.slug / f"seed-{seed}"


def open_comparison(out: Path, suite: Suite, resume: bool | None) -> dict[str, Tuning]:
    """Claim the folder, and give what was tuned.  Raises ``RecordError`` if it holds something else.

    ``resume`` is whether there has to be something in it, or has not to be; None: either.
    """
    path = out / "suite.toml"
    if present(path):
        if resume is False:
            raise RecordError(
                f"{out} already holds a comparison. Choose another --out, or --resume to continue it."
            )
        held = load_suite(path)
        if different := [
            f.name for f in fields(suite) if f.compare and getattr(held, f.name) != getattr(suite, f.name)
        ]:
            raise RecordError(
                f"{out} holds a comparison with other {', '.join(different)}. Choose another --out."
            )
    elif resume:
        raise RecordError(f"{out} holds no comparison to resume. Leave --resume out to start one.")
    elif present(out / "run.json"):
        raise RecordError(f"{out} already holds a run. Choose another --out.")
    _check_data(out, suite)
    write_text(path, suite.source)
    return _read_tunings(out, suite)


def _check_data(out: Path, suite: Suite) -> None:
    """Raise ``RecordError`` if something in the folder was computed on other data than the problem's."""
    data = suite.problem.fingerprint()
    tunings = [_tuning_file(out, entry) for entry in suite.entries]
    runs = [run_folder(out, entry, seed) for entry in suite.entries for seed in suite.seeds]
    found = {path: read_json(path).get("data", data) for path in tunings}
    found |= {run: read_json(run / "run.json").get("config", {}).get("data", data) for run in runs}
    for path, other in found.items():
        if other != data:
            raise RecordError(
                f"{path} is of other data: their fingerprint is {other or 'empty'}, and the problem's is "
                f"{data or 'empty'} now. Put the data back, or choose another --out."
            )


def open_study(out: Path, study: Study, resume: bool | None) -> None:
    """Claim the folder for ``study``; its cases claim their own.  For ``resume`` see above."""
    path = out / "study.toml"
    if present(path):
        if resume is False:
            raise RecordError(
                f"{out} already holds a study. Choose another --out, or --resume to continue it."
            )
        if load(path) != study:
            raise RecordError(f"{out} holds another study. Choose another --out.")
    elif resume:
        raise RecordError(f"{out} holds no study to resume. Leave --resume out to start one.")
    write_text(path, study.source)


def read_study(out: Path) -> Study:
    """The study whose results are in the folder."""
    study = load(out / "study.toml")
    if not isinstance(study, Study):
        raise RecordError(f"{out}/study.toml has no [[case]].")
    return study


def read_comparison(out: Path) -> Comparison:
    """The comparison in the folder, finished or not."""
    suite = load_suite(out / "suite.toml")
    outcomes = []
    for entry in suite.entries:
        for seed in suite.seeds:
            run = run_folder(out, entry, seed)
            with suppress(FileNotFoundError):  # not begun, or begun again at this moment by another job
                rows = read_rows(run / "rows.csv")
                outcomes.append(Outcome(entry.label, seed, rows, read_json(run / "summary.json")))
    return Comparison(suite, _read_tunings(out, suite), outcomes)


def finish_comparison(out: Path) -> Comparison:
    """Gather what was tuned, and the rows of all runs."""
    comparison = read_comparison(out)
    tuned = {label: tuning.to_json() for label, tuning in comparison.tunings.items()}
    write_json(out / "tuning.json", tuned)
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["label", "seed", *(f.name for f in fields(Row))])
    for outcome in comparison.outcomes:
        writer.writerows([outcome.label, outcome.seed, *astuple(row)] for row in outcome.rows)
    write_text(out / "rows.csv", table.getvalue())
    return comparison


def unfinished(out: Path) -> int:
    """How many runs of the comparison or study in the folder are still missing."""
    if present(out / "study.toml"):
        return sum(unfinished(out / case.slug) for case in read_study(out).cases)
    suite = load_suite(out / "suite.toml")
    runs = (run_folder(out, entry, seed) for entry in suite.entries for seed in suite.seeds)
    return sum(not finished(run) for run in runs)


def finished(run: Path) -> bool:
    """Whether the run in that folder came to its end, and its rows are there."""
    ended = read_json(run / "summary.json").get("status", "interrupted") != "interrupted"
    return ended and present(run / "rows.csv")


def _read_tunings(out: Path, suite: Suite) -> dict[str, Tuning]:
    found = {entry.label: _tuning_file(out, entry) for entry in suite.entries if entry.tune}
    return {label: _read_tuning(path) for label, path in found.items() if present(path)}


def _read_tuning(path: Path) -> Tuning:
    try:
        return Tuning.from_json(read_json(path))
    except (TypeError, KeyError, AttributeError):
        raise RecordError(f"{path} is damaged. Delete it and the step size is tuned again.") from None


def write_tuning(out: Path, suite: Suite, entry: Entry, tuning: Tuning) -> None:
    """Record how a method was tuned, and on which data."""
    write_json(_tuning_file(out, entry), tuning.to_json() | {"data": suite.problem.fingerprint()})


def _tuning_file(out: Path, entry: Entry) -> Path:
    return out / "runs" / entry.slug / "tuning.json"
