"""``repr`` of a run, one line, and its small HTML table for a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from mpicomp.base.html import html_table
from mpicomp.base.units import human_bytes
from mpicomp.runtime.rows import Row

HEADER = ("rounds", "f", "|∇f|²", "bytes up", "bytes down", "seconds")
LONGEST = 200  # characters of a text that are shown

NOT_FINISHED = "not finished"  # the status of a record without a summary


def run_line(what: str, rows: Sequence[Row], status: str) -> str:
    """One line in <>: ``what``, the number of rounds, the run's ``status``, and the last row's numbers."""
    if not rows:
        return f"<{what}: no rows, status {status!r}>"
    last = rows[-1]
    seen, above = "", risen(rows)
    if last.f is not None and last.grad_norm_sq is not None:
        seen = f" f = {last.f:.4g}{above and f', {above}'}, |∇f|² = {last.grad_norm_sq:.1e},"
    bytes_sent = f"{human_bytes(last.up_bytes)} up, {human_bytes(last.down_bytes)} down"
    rounds = "1 round" if last.round == 1 else f"{last.round} rounds"
    return f"<{what}: {rounds}, status {status!r},{seen} {bytes_sent}, {last.seconds:.2f} s>"


def risen(rows: Sequence[Row]) -> str:
    """Where f of the last row is above that of the first, in four digits, words that say so; else no text."""
    first, last = (rows[0].f, rows[-1].f) if rows else (None, None)
    if first is None or last is None or float(f"{last:.4g}") <= float(f"{first:.4g}"):
        return ""
    return f"above f(x⁰) = {first:.4g}"


def run_html(what: str, rows: Sequence[Row], status: str) -> str:
    """A table with the first and the last row; its caption has ``what`` and ``status``."""
    ends = rows if len(rows) < 2 else (rows[0], rows[-1])
    return html_table(f"{what}; status {status!r}", HEADER, map(_cells, ends))


def on(method: str, problem: str) -> str:
    """The class names of two texts such as "MARINA(..)" and "Logistic(..)": "MARINA on Logistic"."""
    return f"{_cut(method.partition('(')[0])} on {_cut(problem.partition('(')[0])}"


def on_in_full(method: str, problem: str) -> str:
    """The two texts, each cut to 200 characters, with "on" between them."""
    return f"{_cut(method)} on {_cut(problem)}"


def _cells(row: Row) -> tuple[str, ...]:
    norm_sq = row.grad_norm_sq
    seen = ("" if row.f is None else f"{row.f:.6g}", "" if norm_sq is None else f"{norm_sq:.2e}")
    sent = (human_bytes(row.up_bytes), human_bytes(row.down_bytes))
    return (str(row.round), *seen, *sent, f"{row.seconds:.2f}")


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}.."
