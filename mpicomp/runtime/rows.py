"""The table of a run, rows.csv: one line per observation."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields
from math import inf
from pathlib import Path
from typing import Any

from mpicomp.base.errors import RecordError
from mpicomp.base.files import check_own


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
HEADER = ",".join(_TYPES) + "\n"
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


def as_line(row: Row) -> str:
    """The line of ``row`` in the table."""
    return ",".join("" if v is None else repr(v) for v in asdict(row).values()) + "\n"
