"""The folder of a comparison.

=====================  ======================================================
suite.toml             the suite
tuning.json            every step size that was tried, and which was kept
runs/<label>/seed-<s>  the run of that method with that seed; see ``record``
rows.csv               the rows of all runs, with label and seed
=====================  ======================================================

A study's folder has study.toml and such a folder for each case.  ``mpicomp.report`` adds the tables
and the figure.
"""

from __future__ import annotations

import csv
import io
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from mpicomp.errors import RecordError
from mpicomp.files import read_json, write_json, write_text
from mpicomp.record import Row, read_rows
from mpicomp.study import Study, load
from mpicomp.suite import Entry, Suite, load_suite
from mpicomp.tuning import Tuning


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


def open_comparison(out: Path, suite: Suite, resume: bool) -> dict[str, Tuning]:
    """Claim the folder, and give what was tuned.  Raises ``RecordError`` if it holds something else."""
    path = out / "suite.toml"
    if path.exists():
        if not resume:
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
    elif (out / "run.json").exists():
        raise RecordError(f"{out} already holds a run. Choose another --out.")
    write_text(path, suite.source)
    return _read_tunings(out)


def open_study(out: Path, study: Study, resume: bool) -> None:
    """Claim the folder for ``study``; its cases claim their own."""
    path = out / "study.toml"
    if path.exists():
        if not resume:
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
    found = [(e.label, seed, run_folder(out, e, seed)) for e in suite.entries for seed in suite.seeds]
    outcomes = [
        Outcome(label, seed, read_rows(run / "rows.csv"), read_json(run / "summary.json"))
        for label, seed, run in found
        if (run / "rows.csv").exists()
    ]
    return Comparison(suite, _read_tunings(out), outcomes)


def finish_comparison(out: Path) -> Comparison:
    """Gather the rows of all runs in one file."""
    comparison = read_comparison(out)
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["label", "seed", *(f.name for f in fields(Row))])
    for outcome in comparison.outcomes:
        writer.writerows([outcome.label, outcome.seed, *astuple(row)] for row in outcome.rows)
    write_text(out / "rows.csv", table.getvalue())
    return comparison


def _read_tunings(out: Path) -> dict[str, Tuning]:
    path = out / "tuning.json"
    try:
        return {label: Tuning.from_json(content) for label, content in read_json(path).items()}
    except (TypeError, KeyError, AttributeError):
        raise RecordError(f"{path} is damaged. Delete it and the step sizes are tuned again.") from None


def write_tunings(out: Path, tunings: dict[str, Tuning]) -> None:
    """Record what was tuned so far."""
    write_json(out / "tuning.json", {label: tuning.to_json() for label, tuning in tunings.items()})
