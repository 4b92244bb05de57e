"""Write the folder of a run: its configuration, rows and summary.

=============  ============================================================================
run.json       the facts to repeat the run: configuration, versions, MPI library, hosts
rows.csv       one line per observation, written as it happens
summary.json   the outcome, with bytes and seconds by direction and phase
checkpoint/    see ``mpicomp.runtime.checkpoint``
=============  ============================================================================

``rows`` and ``facts`` read these files, and ``integrity`` says whether they are whole.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from mpicomp.base.errors import RecordError
from mpicomp.base.files import mode_of, os_errors_as, present, read_json, write_atomically, write_json
from mpicomp.runtime import generations
from mpicomp.runtime.facts import changed_code, read_facts, read_summary
from mpicomp.runtime.integrity import check_agree, check_no_gap, check_whole
from mpicomp.runtime.rows import HEADER, Row, as_line, read_rows


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
        facts = read_facts(self.folder)
        if round is not None:
            self.rows = self._rows_until(round, is_due, down_bytes, facts)
            self._note_resume(round, facts)  # only here: a refused resume must change no file
        elif facts.get("config") != self._facts["config"]:
            raise RecordError(
                f"{self.folder}/run.json is of another run, which has begun in this folder at the same time. "
                "Choose another --out for each."
            )
        path = self.folder / "rows.csv"
        table = HEADER + "".join(as_line(row) for row in self.rows)
        write_atomically(path, table.encode())  # atomic: the old rows stay until the new file is complete
        with os_errors_as(RecordError, f"cannot write {path}"):
            self._file = open(path, "a", newline="", buffering=1)  # noqa: SIM115 (open while the run lasts)

    def _rows_until(
        self, round: int, is_due: Callable[[int], bool], down_bytes: int, facts: dict[str, Any]
    ) -> list[Row]:
        """The rows of the table that a run resumed after ``round`` keeps."""
        assert self.folder is not None
        path = self.folder / "rows.csv"
        try:
            saved = read_rows(path)
        except OSError as error:
            raise RecordError(
                f"cannot read {path}: {error.strerror}; a run is resumed with its rows. Put them back, "
                "or start in another folder."
            ) from None
        rows = [row for row in saved if row.round <= round and row.down_bytes <= down_bytes]
        check_whole(self.folder, rows, self._due(round, is_due, facts))
        check_no_gap(self.folder, rows, facts)
        check_agree(self.folder, saved, read_summary(self.folder))
        return rows if is_due(rows[-1].round) else rows[:-1]

    def _note_resume(self, round: int, facts: dict[str, Any]) -> None:
        """Add this run's facts to run.json; warn of code of one's own that has changed."""
        before = facts.get("resumed", [])
        if changed := changed_code(before[-1] if before else facts, self._facts.get("code", {})):
            warnings.warn(
                f"{changed} has changed since the rounds before {round} of {self.folder} were done: the "
                "rounds from there on follow the code of today.",
                stacklevel=3,
            )
        self.amend({"resumed": [*before, self._facts]})

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
                self._file.write(as_line(row))
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
