"""One run of a comparison: its label, seed, rows and summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpicomp.runtime.glance import NOT_FINISHED, run_line
from mpicomp.runtime.record import Row


@dataclass(frozen=True)
class Outcome:
    """One run as recorded in its folder.  ``summary`` is empty while the run is under way."""

    label: str
    seed: int
    rows: list[Row]
    summary: dict[str, Any]

    def __repr__(self) -> str:
        what = f"Outcome of {self.label} with seed {self.seed}"
        return run_line(what, self.rows, self.summary.get("status", NOT_FINISHED))
