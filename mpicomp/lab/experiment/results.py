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

A folder may be read by somebody else than wrote it: nothing that it names is imported, and what it says is
checked.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpicomp.base.errors import RecordError
from mpicomp.base.files import check_own, os_errors_as, present, read_json, write_json, write_text
from mpicomp.base.html import html_table
from mpicomp.lab.experiment.averaged import averaged_in
from mpicomp.lab.experiment.belonging import check_belongs, check_tuning, facts_of_tuning
from mpicomp.lab.experiment.lines import OPEN, Line, Outcome, lines_of
from mpicomp.lab.experiment.start import fingerprint, starting_point
from mpicomp.lab.experiment.study import Case, Study, load_file
from mpicomp.lab.experiment.suite import Entry, Suite
from mpicomp.lab.experiment.suite_file import T, load_suite
from mpicomp.lab.experiment.tables import cells, header, markdown, notes
from mpicomp.lab.experiment.tuning import Tuning
from mpicomp.runtime import plotting
from mpicomp.runtime.facts import read_facts, read_summary
from mpicomp.runtime.frames import frame
from mpicomp.runtime.glance import NOT_FINISHED, on, on_in_full, run_html, run_line
from mpicomp.runtime.integrity import check_agree, check_no_gap, check_whole
from mpicomp.runtime.record import check_claim
from mpicomp.runtime.rows import Row, read_rows
from mpicomp.text.own_classes import without_imports
from mpicomp.text.unimported import UnimportedProblem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


@dataclass(frozen=True)
class Record:
    """One run as recorded in ``folder``; see ``runtime.record``.

    config   the contents of run.json
    summary  the contents of summary.json; empty while the run is under way
    """

    folder: Path
    config: dict[str, Any]
    rows: list[Row]
    summary: dict[str, Any]

    def __repr__(self) -> str:
        return run_line(f"Record of {on(*self._texts)} in {self.folder}", self.rows, self.status)

    def _repr_html_(self) -> str:
        return run_html(f"{on_in_full(*self._texts)}, in {self.folder}", self.rows, self.status)

    @property
    def status(self) -> str:
        """What ended the run; ``NOT_FINISHED`` while it is under way."""
        status: str = self.summary.get("status", NOT_FINISHED)
        return status

    @property
    def data(self) -> str | None:
        """The fingerprint of the problem's data; None if an older version has not recorded it."""
        fingerprint: str | None = self.config.get("config", {}).get("data")
        return fingerprint

    @property
    def _texts(self) -> tuple[str, str]:
        """The texts of method and problem: as resolved, or while the run is under way as configured."""
        known = {"method": "?", "problem": "?"} | self.config.get("config", {}) | self.summary
        return known["method"], known["problem"]

    def to_frame(self) -> DataFrame:
        """The rows as a pandas DataFrame.  Raises ``ConfigError`` if pandas is not installed."""
        return frame(((), row) for row in self.rows)

    def plot(self, x: str = "both", y: str = "gradient", axes: Axes | None = None, **words: Any) -> Axes:
        """``mpicomp.plot`` of this run; ``words`` are its other arguments."""
        return plotting.plot(self, x=x, y=y, axes=axes, **words)


@dataclass(frozen=True)
class Comparison:
    """A suite with its results so far.

    tunings  the tunings of the tuned methods, by label
    data     the fingerprint of the data that its runs recorded, if they are in a folder
    """

    suite: Suite
    tunings: dict[str, Tuning]
    outcomes: list[Outcome]
    data: str | None = None

    def __repr__(self) -> str:
        entries = self.suite.entries
        labels = ", ".join(entry.label for entry in entries[:4]) + (", .." if len(entries) > 4 else "")
        ended = sum(o.status not in OPEN for o in self.outcomes)
        of = f"{ended} of {len(entries) * len(self.suite.seeds)} runs"
        return f"<Comparison of {len(entries)} methods on {_name(self.suite)}, {of} ended: {labels}>"

    def _repr_html_(self) -> str:
        lines, suite = self.lines(), self.suite
        shown = [cells(line, suite) for line in lines]
        return html_table(suite.title, header(suite), shown, " ".join(notes(lines, suite)))

    def to_frame(self) -> DataFrame:
        """The rows of all runs as a pandas DataFrame: label, seed, and the columns of ``Row``.

        Raises ``ConfigError`` if pandas is not installed.
        """
        rows = (((o.label, o.seed), row) for o in self.outcomes for row in o.rows)
        return frame(rows, ("label", "seed"))

    def lines(self) -> list[Line]:
        """A line of the table for each method, in the order of the suite."""
        return lines_of(self.suite, self.tunings, self.outcomes)

    def table(self) -> str:
        """The results in Markdown, a line for each method, with notes on the meaning of the numbers."""
        return markdown(self.lines(), self.suite)

    def plot(self, x: str = "both", y: str = "gradient", axes: Axes | None = None, **words: Any) -> Axes:
        """``mpicomp.plot`` of this comparison; ``words`` are its other arguments."""
        return plotting.plot(self, x=x, y=y, axes=axes, **words)


def _name(suite: Suite) -> str:
    problem = suite.problem
    return problem.text if isinstance(problem, UnimportedProblem) else type(problem).__name__


# What is written anew at the end: by ``experiment.report``, and in a comparison by ``finish_comparison``.
_PUBLISHED = ("table.md", "table.json", "figure.png")
_GATHERED = ("tuning.json", "rows.csv")


def run_folder(out: Path, entry: Entry, seed: int) -> Path:
    """The folder of the run of ``entry`` with ``seed``."""
    return out / "runs" / entry.slug / f"seed-{seed}"


def _runs(out: Path, suite: Suite) -> Iterator[tuple[Entry, int, Path]]:
    """The entry, the seed and the folder of each run of ``suite``."""
    return ((entry, seed, run_folder(out, entry, seed)) for entry in suite.entries for seed in suite.seeds)


def open_comparison(out: Path, suite: Suite, resume: bool | None, averaged: str) -> dict[str, Tuning]:
    """Claim the folder ``out`` for ``suite``; returns the tunings recorded there, by label.

    resume    True: the folder must hold this comparison.  False: it must not hold any.  None: either.
    averaged  how its runs average messages; see the module ``averaged``

    Raises ``RecordError`` if that is violated, if the folder holds a run, another comparison, or files of the
    user's that would be overwritten, if it leads elsewhere, or if its results were computed on other data, or
    averaged otherwise.
    """
    path = out / "suite.toml"
    _check_inside(out, suite)
    check_claim(out, "comparison", present(path), resume)
    if present(path):
        held = _kept(path, load_suite)
        if different := [
            f.name for f in fields(suite) if f.compare and getattr(held, f.name) != getattr(suite, f.name)
        ]:
            raise RecordError(
                f"{out} holds a comparison with other {', '.join(different)}. Choose another --out."
            )
    elif present(out / "run.json"):
        raise RecordError(f"{out} already holds a run. Choose another --out.")
    _check_free(out, suite)
    _check_origin(out, suite, averaged)
    write_text(path, suite.source)
    return _read_tunings(out, suite)


def _check_free(out: Path, work: Suite | Study) -> None:
    """Raise ``RecordError`` if ``out`` holds files that ``work`` would overwrite, and has not begun."""
    if isinstance(work, Study):
        claim, names = "study.toml", [f"figure-{i}.png" for i in range(2, len(work.cases) + 1)]
    else:
        claim, names = "suite.toml", [*_GATHERED, *(f"runs/{entry.slug}" for entry in work.entries)]
    held = [name for name in (*_PUBLISHED, *names) if os.path.lexists(out / name)]
    if held and not present(out / claim):  # looked for last: other jobs write it first
        raise RecordError(
            f"{out} holds {', '.join(held)}, which would be overwritten, and no {claim}. "
            "Choose another --out."
        )


def _check_inside(out: Path, suite: Suite) -> None:
    """Raise ``RecordError`` if the folder of a run is not below ``out``."""
    for _, _, run in _runs(out, suite):
        _check_below(out, run)


def _check_below(out: Path, folder: Path) -> None:
    if not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(out)):
        raise RecordError(f"{folder} leads out of {out}: it is a link. Put a copy of that folder there.")


def _check_origin(out: Path, suite: Suite, averaged: str) -> None:
    """Raise ``RecordError`` if a result in the folder is not the suite's, or is averaged otherwise."""
    found = {path: read_json(path) for path in (_tuning_file(out, entry) for entry in suite.entries)}
    for entry, seed, run in _runs(out, suite):
        facts = read_facts(run)
        check_belongs(run, facts, suite, entry, seed)
        if config := facts.get("config"):
            found[run] = config | {"averaged": averaged_in(config)}
    data, start = suite.problem.fingerprint(), fingerprint(starting_point(suite.x0))
    for path, held in ((path, held) for path, held in found.items() if held):
        if (other := held.get("data", data)) != data:
            raise RecordError(
                f"{path} is of other data: their fingerprint is {other or 'empty'}, and the problem's is "
                f"{data or 'empty'} now. Put the data back, or choose another --out."
            )
        if (other := held.get("x0", "")) != start:
            raise RecordError(
                f"{path} started elsewhere: at an x0 of {other or 'the problem'}, and now x0 is of "
                f"{start or 'the problem'}. Put x0 back, or choose another --out."
            )
        if (other := held.get("averaged", averaged)) != averaged:
            raise RecordError(
                f"{path} is of runs with {other}, and now they have {averaged}, so iterates and bytes would "
                "be others. Give --server and --blocks as before, or choose another --out."
            )


def open_study(out: Path, study: Study, resume: bool | None) -> None:
    """Claim the folder ``out`` for ``study``, as ``open_comparison`` does; the cases claim theirs later."""
    path = out / "study.toml"
    check_claim(out, "study", present(path), resume)
    if present(path) and _kept(path, load_file) != study:
        raise RecordError(f"{out} holds another study. Choose another --out.")
    _check_free(out, study)
    for case in study.cases:
        _check_below(out, out / case.slug)
        _check_inside(out / case.slug, case.suite)
        _check_free(out / case.slug, case.suite)
    write_text(path, study.source)


def read_study(out: Path) -> Study:
    """The study whose results are in the folder.  Raises ``RecordError`` if it holds a comparison."""
    study = _kept(out / "study.toml", load_file)
    if not isinstance(study, Study):
        raise RecordError(f"{out}/study.toml has no [[case]].")
    for case in study.cases:
        _check_below(out, out / case.slug)
    return study


def _kept(path: Path, load: Callable[[Path], T]) -> T:
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
    suite = _kept(out / "suite.toml", load_suite)
    _check_inside(out, suite)
    outcomes, data, manners = [], dict[str, Path](), dict[str, Path]()
    for entry, seed, run in _runs(out, suite):
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
    return Comparison(suite, _read_tunings(out, suite), outcomes, next(iter(data), None))


def read_case(out: Path, case: Case) -> Comparison:
    """The comparison of ``case``, of the study in ``out``.  Raises ``RecordError`` for another comparison."""
    comparison = read_comparison(out / case.slug)
    if replace(comparison.suite, title=case.suite.title) != case.suite:
        raise RecordError(
            f"{out / case.slug} holds another comparison than the case {case.label!r} of {out}/study.toml. "
            "Put the folder and study.toml back as they were."
        )
    return comparison


def _check_result(record: Record) -> None:
    """Raise ``RecordError`` unless summary and rows of a run of a comparison suffice for a table."""
    run, has_all = record.folder, record.rows and "method" in record.summary
    if record.status not in ("diverged", NOT_FINISHED) and not has_all:
        raise RecordError(f"{run} is damaged: it is finished, and rows or a method are missing. Delete it.")
    if any(row.f is None or row.grad_norm_sq is None for row in record.rows):
        raise RecordError(f"{run}/rows.csv is damaged: there are rows without f. Delete {run}.")


def finish_comparison(out: Path) -> Comparison:
    """Write tuning.json and rows.csv from the folders of the runs; returns the comparison."""
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
    """The number of runs still missing from the comparison or study in the folder."""
    if present(out / "study.toml"):
        return sum(unfinished(out / case.slug) for case in read_study(out).cases)
    suite = _kept(out / "suite.toml", load_suite)
    return sum(not finished(run) for _, _, run in _runs(out, suite))


def finished(run: Path) -> bool:
    """Whether the run in folder ``run`` has ended without interruption and its rows are there."""
    ended = read_summary(run).get("status", "interrupted") != "interrupted"
    return ended and present(run / "rows.csv")


def _read_tunings(out: Path, suite: Suite) -> dict[str, Tuning]:
    """The tunings in the folder, by label.  Raises ``RecordError`` for one that is not the suite's."""
    found = ((entry, _tuning_file(out, entry)) for entry in suite.entries if entry.tune)
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
    write_json(_tuning_file(out, entry), tuning.to_json() | origin)


def _tuning_file(out: Path, entry: Entry) -> Path:
    return out / "runs" / entry.slug / "tuning.json"
