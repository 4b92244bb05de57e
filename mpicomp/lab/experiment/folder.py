"""The folder of a comparison.

========================  ===================================================
suite.toml                the suite
runs/<label>/tuning.json  every step size that was tried for that method, and the best
runs/<label>/seed-<s>     the run of that method with seed s; see ``runtime.record``
tuning.json               the contents of all runs/<label>/tuning.json, by label
rows.csv                  the rows of all runs, with label and seed
========================  ===================================================

Jobs that share the work write into different folders below runs/.  At its end each job gathers tuning.json
and rows.csv from the runs that it finds, so that the last job's files are complete.

A study's folder has study.toml and a folder of this kind for each case.  ``experiment.report`` adds the
tables and the figure.

``claim`` says who may write into a folder.  A folder may be read by somebody else than wrote it: nothing that
it names is imported, and what it says is checked.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import astuple, fields, replace
from pathlib import Path

from mpicomp.base.errors import RecordError
from mpicomp.base.files import check_own, os_errors_as, present, read_json, write_json, write_text
from mpicomp.lab.experiment.averaged import averaged_in
from mpicomp.lab.experiment.belonging import check_belongs, check_tuning, facts_of_tuning
from mpicomp.lab.experiment.lines import Outcome
from mpicomp.lab.experiment.results import Comparison, Record
from mpicomp.lab.experiment.start import fingerprint, starting_point
from mpicomp.lab.experiment.study import Case, Study, load_file
from mpicomp.lab.experiment.suite import Entry, Suite
from mpicomp.lab.experiment.suite_file import load_suite
from mpicomp.lab.experiment.toml import T
from mpicomp.lab.experiment.trials import Tuning
from mpicomp.runtime.facts import read_facts, read_summary
from mpicomp.runtime.glance import NOT_FINISHED
from mpicomp.runtime.integrity import check_agree, check_no_gap, check_whole
from mpicomp.runtime.rows import Row, read_rows
from mpicomp.text.own_classes import without_imports


def run_folder(out: Path, entry: Entry, seed: int) -> Path:
    """The folder of the run of ``entry`` with ``seed``."""
    return out / "runs" / entry.slug / f"seed-{seed}"


def runs_of(out: Path, suite: Suite) -> Iterator[tuple[Entry, int, Path]]:
    """The entry, the seed and the folder of each run of ``suite``."""
    return ((entry, seed, run_folder(out, entry, seed)) for entry in suite.entries for seed in suite.seeds)


def tuning_file(out: Path, entry: Entry) -> Path:
    """The file that says how ``entry`` was tuned."""
    return out / "runs" / entry.slug / "tuning.json"


def check_inside(out: Path, suite: Suite) -> None:
    """Raise ``RecordError`` if the folder of a run is not below ``out``."""
    for _, _, run in runs_of(out, suite):
        check_below(out, run)


def check_below(out: Path, folder: Path) -> None:
    """Raise ``RecordError`` if ``folder`` is not below ``out``, because it is a link."""
    if not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(out)):
        raise RecordError(f"{folder} leads out of {out}: it is a link. Put a copy of that folder there.")


def kept(path: Path, load: Callable[[Path], T]) -> T:
    """``load`` the suite or study in ``path``, without importing a class that this process has not."""
    check_own(path)
    with without_imports():
        return load(path)


def read_run(folder: Path) -> Record:
    """The record of the run in the folder, finished or not.  Raises ``RecordError`` if there is none."""
    if not present(folder):
        raise RecordError(f"{folder}: no such folder.")
    if not present(folder / "run.json"):
        raise RecordError(f"{folder} holds neither a comparison nor a run.")
    with os_errors_as(RecordError, f"cannot read {folder}/rows.csv"):
        return _read_whole(folder)


def _read_whole(folder: Path) -> Record:
    """The record of the run in the folder.  Raises ``RecordError`` unless its files are whole and agree.

    Raises ``FileNotFoundError`` if it has no rows yet.
    """
    summary = read_summary(folder)  # before the rows: a run that is under way writes it after them
    rows, facts = read_rows(folder / "rows.csv"), read_facts(folder)
    if "rounds" in summary:
        check_whole(folder, rows, summary["rounds"])
    check_agree(folder, rows, summary)
    check_no_gap(folder, rows, facts)
    return Record(folder, facts, rows, summary)


def read_comparison(out: Path) -> Comparison:
    """The comparison in the folder, finished or not.

    Raises ``RecordError`` for a run that is damaged or not the suite's, and for runs of different data or
    averaged differently.
    """
    suite = kept(out / "suite.toml", load_suite)
    check_inside(out, suite)
    outcomes, data, manners = [], dict[str, Path](), dict[str, Path]()
    for entry, seed, run in runs_of(out, suite):
        with suppress(FileNotFoundError):  # not started, or another job is just starting it afresh
            record = _read_whole(run)
            _check_result(record)
            check_belongs(run, record.config, suite, entry, seed)
            outcomes.append(Outcome(entry.label, seed, record.rows, record.summary))
            if record.data is not None:
                data.setdefault(record.data, run)
            if config := record.config.get("config"):
                manners.setdefault(averaged_in(config), run)
    if len(data) > 1:
        apart = ", ".join(f"{run}: {found or 'none'}" for found, run in data.items())
        raise RecordError(f"the runs in {out} are of other data each, by their fingerprints: {apart}.")
    if len(manners) > 1:
        apart = ", ".join(f"{run}: {found}" for found, run in manners.items())
        raise RecordError(f"the runs in {out} average their messages in several ways: {apart}.")
    return Comparison(suite, read_tunings(out, suite), outcomes, next(iter(data), None))


def _check_result(record: Record) -> None:
    """Raise ``RecordError`` unless summary and rows of a run of a comparison suffice for a table."""
    run, has_all = record.folder, record.rows and "method" in record.summary
    if record.status not in ("diverged", NOT_FINISHED) and not has_all:
        raise RecordError(f"{run} is damaged: it is finished, and rows or a method are missing. Delete it.")
    if any(row.f is None or row.grad_norm_sq is None for row in record.rows):
        raise RecordError(f"{run}/rows.csv is damaged: there are rows without f. Delete {run}.")


def read_study(out: Path) -> Study:
    """The study whose results are in the folder.  Raises ``RecordError`` if it holds a comparison."""
    study = kept(out / "study.toml", load_file)
    if not isinstance(study, Study):
        raise RecordError(f"{out}/study.toml has no [[case]].")
    for case in study.cases:
        check_below(out, out / case.slug)
    return study


def read_case(out: Path, case: Case) -> Comparison:
    """The comparison of ``case``, of the study in ``out``.  Raises ``RecordError`` for another comparison."""
    comparison = read_comparison(out / case.slug)
    if replace(comparison.suite, title=case.suite.title) != case.suite:
        raise RecordError(
            f"{out / case.slug} holds another comparison than the case {case.label!r} of {out}/study.toml. "
            "Put the folder and study.toml back as they were."
        )
    return comparison


def finished(run: Path) -> bool:
    """Whether the run in folder ``run`` has ended without interruption and its rows are there."""
    ended = read_summary(run).get("status", "interrupted") != "interrupted"
    return ended and present(run / "rows.csv")


def unfinished(out: Path) -> int:
    """The number of runs still missing from the comparison or study in the folder."""
    if present(out / "study.toml"):
        return sum(unfinished(out / case.slug) for case in read_study(out).cases)
    suite = kept(out / "suite.toml", load_suite)
    return sum(not finished(run) for _, _, run in runs_of(out, suite))


def read_tunings(out: Path, suite: Suite) -> dict[str, Tuning]:
    """The tunings in the folder, by label.  Raises ``RecordError`` for one that is not the suite's."""
    found = ((entry, tuning_file(out, entry)) for entry in suite.entries if entry.tune)
    return {entry.label: _read_tuning(path, suite, entry) for entry, path in found if present(path)}


def _read_tuning(path: Path, suite: Suite, entry: Entry) -> Tuning:
    content = read_json(path)
    try:
        check_tuning(path, content, suite, entry)
        return Tuning.from_json(content)
    except (TypeError, KeyError, AttributeError):
        raise RecordError(f"{path} is damaged. Delete it and the step size is tuned again.") from None


def write_tuning(out: Path, suite: Suite, entry: Entry, tuning: Tuning, averaged: str) -> None:
    """Record how a method was tuned, and by what: x0 only if it is the suite's."""
    origin = facts_of_tuning(suite, entry) | {"data": suite.problem.fingerprint(), "averaged": averaged}
    origin |= {"x0": fingerprint(starting_point(suite.x0))} if suite.x0 is not None else {}
    write_json(tuning_file(out, entry), tuning.to_json() | origin)


def finish_comparison(out: Path) -> Comparison:
    """Write tuning.json and rows.csv from the folders of the runs; returns the comparison.

    If another job ends a run meanwhile, and perhaps writes the files first, they are written once more: the
    last to write must have read all.
    """
    while True:
        missing = unfinished(out)
        comparison = _gather(out)
        if unfinished(out) == missing:
            return comparison


def _gather(out: Path) -> Comparison:
    """Write tuning.json and rows.csv from what the folders of the runs hold now; returns the comparison."""
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
