"""Whether the files in a run's folder are whole, and all of one run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.runtime.observation import Observation
from mpicomp.runtime.rows import Row


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
