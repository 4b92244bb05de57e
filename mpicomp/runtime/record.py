"""Write and read the folder of a run: its configuration, rows and summary.

=============  ============================================================================
run.json       the facts to repeat the run: configuration, versions, MPI library, hosts
rows.csv       one line per observation, written as it happens
summary.json   the outcome, with bytes and seconds by direction and phase
checkpoint/    see ``mpicomp.runtime.checkpoint``
=============  ============================================================================
"""

from __future__ import annotations

import csv
import os
import platform
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path
from typing import Any, TextIO

from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.files import (
    check_own,
    mode_of,
    os_errors_as,
    present,
    read_json,
    write_atomically,
    write_json,
)
from mpicomp.base.version import __version__
from mpicomp.runtime import generations
from mpicomp.runtime.observation import Observation


@dataclass(frozen=True)
class Row:
    """One observation, after ``round`` rounds.  Bytes are totals over all workers so far.

    If ranks died after that round, it has a second row.  From there on f and all means are taken over the
    remaining workers only.

    f and grad_norm_sq (|∇f|²) are evaluated on the samples that the run observes, by default all.  They are
    None, and empty in the table, if the run observes none.

    epochs   passes over a worker's samples, mean over workers (see ``measure.Meter``)
    error    the total error of error feedback, sum_k |e_i^k|², mean over workers; None, and empty in the
             table, for a method without error feedback
    seconds  wall-clock time on the server, without the time spent on observing
    x_norm   |x|, the two-norm of the observed model; None in a table of a version that had no such column
    """

    round: int
    f: float | None
    grad_norm_sq: float | None
    up_bytes: int
    down_bytes: int
    paper_bits_up: int
    paper_bits_down: int
    epochs: float
    error: float | None
    seconds: float
    x_norm: float | None = None

    @property
    def value(self) -> float:
        """The row's f as a number; ``AssertionError`` if it was not computed.  Comparisons compute it."""
        assert self.f is not None
        return self.f


def _count(text: str) -> int:
    if re.fullmatch(r"\d{1,30}", text, re.ASCII) is None:
        raise ValueError("a count is a number of digits")
    return int(text)


def _optional_float(text: str | None) -> float | None:
    """The number in a field of the table; None if the field is empty or missing."""
    return float(text) if text else None


_READERS: dict[str, Callable[[str], Any]] = {"int": _count, "float": float, "float | None": _optional_float}
_TYPES = {f.name: _READERS[str(f.type)] for f in fields(Row)}
_REQUIRED = [f.name for f in fields(Row) if f.default is MISSING]  # older tables have these columns too


def read_rows(path: Path) -> list[Row]:
    """Read the rows of the table ``path`` (rows.csv).  A last line without its end is left out.

    Raises ``FileNotFoundError`` if there is no file, and ``RecordError`` if it cannot be read, is no table of
    rows, or lacks a column, as tables of older versions may.
    """
    check_own(path)
    try:
        with open(path, newline="", encoding="utf-8") as file:
            whole = [line for line in file if line.endswith("\n")]  # a number cut short still looks like one
        table = csv.DictReader(whole)
        names = table.fieldnames or _TYPES
        if len(set(names)) < len(names):
            raise csv.Error("two columns have one name")
        missing = [name for name in _REQUIRED if name not in names]
        lines = list(table)
    except PermissionError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise RecordError(f"{path} is no table of rows: {error}.") from None
    if missing:
        raise RecordError(
            f"{path} has no column {', '.join(missing)}: another version of mpicomp has written it. "
            "Read it with that version, or run again in another folder."
        )
    rows: list[Row] = []
    for line in lines:
        try:
            row = Row(**{name: kind(line[name]) for name, kind in _TYPES.items() if name in line})
            again = bool(rows) and (row.round < rows[-1].round or row == rows[-1])
            if None in line or again or not _is_possible(row):
                raise ValueError("too many fields, an earlier round, or numbers that no run records")
            rows.append(row)
        except (TypeError, ValueError):
            raise RecordError(
                f"{path} is damaged: no run records its row number {len(rows) + 1} after the rows before. "
                "Put the file back as it was written, or run again in another folder."
            ) from None
    return rows


def _is_possible(row: Row) -> bool:
    """Whether a run may record ``row``: with f goes ∇f, norms are not below 0, and times are finite too."""
    norms = (row.grad_norm_sq, row.error, row.x_norm)
    return (
        (row.f is None) == (row.grad_norm_sq is None)
        and all(0 <= passed < inf for passed in (row.epochs, row.seconds))
        and not any(norm is not None and norm < 0 for norm in norms)
    )


# The entries that are read from the two JSON files, and their types.  Older versions wrote fewer.
_FACTS = {"config": dict, "asked": dict, "code": dict, "resumed": list, "lost": list}
_SUMMARY = {"status": str, "method": str, "problem": str, "ranks": int, "rounds": int, "set_up_bytes": int}


def read_facts(folder: Path) -> dict[str, Any]:
    """The contents of a run's run.json; {} if there is no such file.

    Raises ``RecordError`` if it is damaged.
    """
    path = folder / "run.json"
    facts = _checked(path, read_json(path), _FACTS)
    for one in facts.get("resumed", []):
        if not isinstance(one, dict):
            raise _damaged(path, "resumed", facts["resumed"])
        _checked(path, one, _FACTS)
    _checked(path, facts.get("asked", {}), {"method": str})
    config = facts.get("config", {})
    _checked(path, config, dict.fromkeys(config, str))
    if re.fullmatch(r"[1-9]\d{0,8}", config.get("workers", "1"), re.ASCII) is None:
        raise _damaged(path, "workers", config["workers"])
    return facts


def read_summary(folder: Path) -> dict[str, Any]:
    """The contents of a run's summary.json; {} if there is no such file.

    Raises ``RecordError`` if it is damaged.
    """
    path = folder / "summary.json"
    return _checked(path, read_json(path), _SUMMARY)


def check_whole(folder: Path, rows: list[Row], last: int) -> None:
    """Raise ``RecordError`` unless ``rows``, of rows.csv in ``folder``, go from the start to round ``last``.

    A crash of the machine, or a copy that was broken off, may leave a table without its end.
    """
    first, end = (rows[0].round, rows[-1].round) if rows else (None, None)
    if first == 0 and end is not None and end >= last:
        return
    held = "no rows" if first is None else f"rows from round {first} to {end}"
    raise RecordError(
        f"{folder}/rows.csv holds {held}, and the run had recorded 0 to {last}: rows are lost. Put the file "
        "back as it was written, or run again in another folder."
    )


def check_no_gap(folder: Path, rows: list[Row], facts: Mapping[str, Any]) -> None:
    """Raise ``RecordError`` if a row is missing before the last of ``rows``, of rows.csv in ``folder``.

    ``facts`` are those of run.json.  Rows are not missed if it does not say after which rounds there are
    some, or if a resume has changed them.
    """
    asked = (one.get("asked", {}) for one in (facts, *facts.get("resumed", [])))
    told, *later = [(one.get("every"), one.get("at")) for one in asked]
    held = {row.round for row in rows}
    with suppress(ConfigError):
        due = Observation(*told).due(max(held, default=0)) if all(one == told for one in later) else ()
        if (lost := next((round for round in due if round not in held), None)) is not None:
            raise RecordError(
                f"{folder}/rows.csv has no row after round {lost}, which the run had recorded: it is lost. "
                "Put the file back as it was written, or run again in another folder."
            )


def check_agree(folder: Path, rows: list[Row], summary: Mapping[str, Any]) -> None:
    """Raise ``RecordError`` if ``rows`` say otherwise than ``summary`` of the round in which the run ended.

    A copy that was broken off, or one over another run, may leave files of two runs.
    """
    wrong = ""
    for row in (row for row in rows if row.round == summary.get("rounds")):  # two, where ranks have died
        held = {name: getattr(row, name) for name in ("f", "up_bytes", "down_bytes")}
        wrong = next((name for name, value in held.items() if summary.get(name, value) != value), "")
        if not wrong:
            return
    if wrong:
        raise RecordError(
            f"{folder}/rows.csv and summary.json are of two runs: after round {summary['rounds']} {wrong} is "
            f"{held[wrong]} in one and {summary[wrong]} in the other. Put the files of one run back."
        )


def changed_code(facts: Mapping[str, Any], code: Mapping[str, str]) -> str:
    """The files of ``code`` that had other code in the run with these ``facts``; "" for none.

    Both have hashes by a file's name, ``code_of`` classes of one's own.
    """
    held = facts.get("code", {})
    return ", ".join(name for name, hash in code.items() if held.get(name, hash) != hash)


def check_claim(folder: Path, what: str, found: bool, resume: bool | None) -> None:
    """Raise ``RecordError`` if ``folder`` holds what ``resume`` forbids, or lacks what ``resume`` asks for.

    what    "run", "comparison" or "study"; ``found`` says whether the folder holds one
    resume  True: it must be there.  False: it must not.  None: either
    """
    if found and resume is False:
        raise RecordError(
            f"{folder} already holds a {what}. Choose another --out, or --resume to continue it."
        )
    if resume and not found:
        raise RecordError(f"{folder} holds no {what} to resume. Leave --resume out to start one.")


def remove_run(folder: Path) -> None:
    """Delete the files of the run in ``folder``, as far as that is allowed.

    Raises ``RecordError``, and deletes nothing, if a file of others is among its checkpoints.
    """
    if theirs := generations.foreign(folder / "checkpoint"):
        raise RecordError(
            f"{theirs[0]} belongs to no checkpoint, and the unfinished run in {folder} is to begin anew "
            "without them: move it away."
        )
    for name in ("summary.json", "rows.csv", "run.json"):
        with suppress(OSError):
            (folder / name).unlink()
    generations.remove(folder / "checkpoint")


def _checked(path: Path, content: dict[str, Any], types: Mapping[str, type]) -> dict[str, Any]:
    for name, kind in types.items():
        if name in content and type(content[name]) is not kind:
            raise _damaged(path, name, content[name])
    return content


def _damaged(path: Path, name: str, value: Any) -> RecordError:
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}.."
    return RecordError(
        f"{path} is damaged: {name} = {shown}. Put the file back as it was written, or choose another folder."
    )


class Recorder:
    """Keep a run's rows in memory and, if a folder is given, in files."""

    def __init__(self, folder: Path | None, facts: dict[str, Any], resume: bool, afresh: bool) -> None:
        """Open ``folder``; None: keep no files.

        facts   the contents of run.json
        resume  continue the run in ``folder``
        afresh  replace a run in ``folder`` that has no checkpoint yet

        Raises ``RecordError`` if the folder holds another run, holds none to resume, or cannot be written.
        """
        self.folder = folder
        self.rows: list[Row] = []
        self._file: TextIO | None = None
        self._facts = facts
        if folder is None:
            return
        found = present(folder / "run.json") or present(folder / "rows.csv")
        path = folder / "run.json"
        check_claim(folder, "run", found, None if afresh else resume)
        if found:
            if afresh and read_facts(folder).get("config") != facts["config"]:
                raise RecordError(f"{folder} holds a run of another configuration. Choose another --out.")
        elif held := [name for name in ("summary.json", "checkpoint") if os.path.lexists(folder / name)]:
            raise RecordError(
                f"{folder} holds {', '.join(held)}, which would be overwritten, and no run. "
                "Choose another --out."
            )
        with os_errors_as(RecordError, f"cannot create {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
        if not resume:
            write_json(path, facts)

    def start(self, round: int | None, is_due: Callable[[int], bool], down_bytes: int = 0) -> None:
        """Open the table: a new one if ``round`` is None, else keep the rows up to ``round``.

        down_bytes  of a resumed run's checkpoint.  A row of ``round`` with more is left out: ranks died after
                    the checkpoint, and their death is undone

        Raises ``RecordError`` if another run has begun in the folder since it was opened: the facts would be
        of one run, and the rows of the other.

        The resume is noted in run.json.  The last kept row is dropped if it is not due by ``is_due``, because
        an uninterrupted run would not have it.
        """
        if self.folder is None:
            return
        path, facts = self.folder / "rows.csv", read_facts(self.folder)
        if round is None and facts.get("config") != self._facts["config"]:
            raise RecordError(
                f"{self.folder}/run.json is of another run, which has begun in this folder at the same time. "
                "Choose another --out for each."
            )
        try:
            saved = read_rows(path) if round is not None else []
        except OSError as error:
            raise RecordError(
                f"cannot read {path}: {error.strerror}; a run is resumed with its rows. Put them back, "
                "or start in another folder."
            ) from None
        self.rows = [row for row in saved if row.round <= (round or 0) and row.down_bytes <= down_bytes]
        if round is not None:
            check_whole(self.folder, self.rows, self._due(round, is_due, facts))
            check_no_gap(self.folder, self.rows, facts)
            check_agree(self.folder, saved, read_summary(self.folder))
        if self.rows and not is_due(self.rows[-1].round):
            self.rows.pop()
        if round is not None:  # only here: a refused resume must change no file
            before = facts.get("resumed", [])
            if changed := changed_code(before[-1] if before else facts, self._facts.get("code", {})):
                warnings.warn(
                    f"{changed} has changed since the rounds before {round} of {self.folder} were done: the "
                    "rounds from there on follow the code of today.",
                    stacklevel=2,
                )
            self.amend({"resumed": [*before, self._facts]})
        table = ",".join(_TYPES) + "\n" + "".join(_line(row) for row in self.rows)
        write_atomically(path, table.encode())  # atomic: the old rows stay until the new file is complete
        with os_errors_as(RecordError, f"cannot write {path}"):
            self._file = open(path, "a", newline="", buffering=1)  # noqa: SIM115 (open while the run lasts)

    def _due(self, round: int, is_due: Callable[[int], bool], facts: dict[str, Any]) -> int:
        """The last round up to ``round`` after which there is a row; 0 if the rounds of rows have changed."""
        asked = (one.get("asked", {}) for one in (self._facts, facts, *facts.get("resumed", [])))
        (every, at), *before = ((one.get("every"), one.get("at")) for one in asked)
        if any(one != (every, at if at is None else list(at)) for one in before):  # JSON has lists
            return 0
        return next(k for k in range(round, -1, -1) if is_due(k))

    def add(self, row: Row) -> None:
        """Append ``row`` to the table, on disk at once.  Raises ``RecordError`` if it cannot be written."""
        self.rows.append(row)
        if self._file is not None:
            try:
                self.check()
                self._file.write(_line(row))
            except OSError as error:
                self.close()
                raise RecordError(
                    f"cannot write {self.folder}/rows.csv: {error.strerror}. The rows up to round "
                    f"{self.rows[-2].round if len(self.rows) > 1 else 0} are kept."
                ) from None

    def check(self) -> None:
        """Raise ``RecordError`` if the table was removed or replaced: rows written to it would be lost."""
        if self.folder is None or self._file is None:
            return
        path, opened = self.folder / "rows.csv", os.fstat(self._file.fileno())
        if not mode_of(path) or not os.path.samestat(path.stat(), opened):
            raise RecordError(
                f"{path} was removed, moved or replaced while the run was writing to it. The run ends; "
                "what it has recorded is where that file is now."
            )

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write one of the folder's JSON files, if there is a folder."""
        if self.folder is not None:
            write_json(self.folder / name, content)

    def amend(self, facts: dict[str, Any]) -> None:
        """Replace the entries ``facts`` of run.json, if there is a folder."""
        if self.folder is not None:
            path = self.folder / "run.json"
            write_json(path, read_json(path) | facts)

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # what could not be written has been reported
                self._file.close()
            self._file = None


def _line(row: Row) -> str:
    return ",".join("" if v is None else repr(v) for v in asdict(row).values()) + "\n"


def describe_machine() -> dict[str, str]:
    """The versions of Python, the platform, mpicomp, numpy, scipy and mpi4py, for the record."""
    found = {"python": sys.version.split()[0], "platform": platform.platform(), "mpicomp": __version__}
    return found | {package: _version_of(package) for package in ("numpy", "scipy", "mpi4py")}


@cache  # a millisecond each, which a comparison's short runs would notice
def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
