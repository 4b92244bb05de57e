"""Runs as a notebook shows them: a small table in HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from mpicomp.base.units import human_bytes
from mpicomp.runtime.record import Row

SHOWN = 12  # rows of a run at most: of more, some in between are left out

HEADER = ("round", "f", "|∇f|²", "up", "down", "seconds")


def html_of_rows(title: str, rows: Sequence[Row]) -> str:
    """The rows of a run below its title, the first and the last among them; bytes are of all workers."""
    chosen = rows
    if len(rows) > SHOWN:
        chosen = [rows[i * (len(rows) - 1) // (SHOWN - 1)] for i in range(SHOWN)]
    return html_table(title, HEADER, [_cells(row) for row in chosen])


def html_table(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in HTML; what it is given is text, and is escaped."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    caption = f"<caption>{escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def described(method: str, problem: str, workers: int, rows: Sequence[Row], status: str) -> str:
    """A run in one line."""
    if not rows:
        return f"{method} on {problem}, {workers} workers: no row yet"
    last = rows[-1]
    f = "" if last.f is None else f", f = {last.f:.6g}"
    return (
        f"{method} on {problem}, {workers} workers: {last.round} rounds ({status}){f}, "
        f"{human_bytes(last.up_bytes)} up, {human_bytes(last.down_bytes)} down, {last.seconds:.3g} s"
    )


def _cells(row: Row) -> list[str]:
    observed = [
        "" if v is None else form.format(v) for v, form in ((row.f, "{:.6g}"), (row.grad_norm_sq, "{:.2e}"))
    ]
    moved = [human_bytes(row.up_bytes), human_bytes(row.down_bytes)]
    return [f"{row.round}", *observed, *moved, f"{row.seconds:.3g}"]
