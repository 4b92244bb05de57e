"""The results of a run, and of a comparison, as objects: what ``mpicomp.load`` and ``compare`` return."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpicomp.base.html import html_table
from mpicomp.lab.experiment.lines import OPEN, Line, Outcome, lines_of
from mpicomp.lab.experiment.suite import Suite
from mpicomp.lab.experiment.tables import cells, header, markdown, notes
from mpicomp.lab.experiment.trials import Tuning
from mpicomp.runtime import plotting
from mpicomp.runtime.frames import frame
from mpicomp.runtime.glance import NOT_FINISHED, on, on_in_full, run_html, run_line
from mpicomp.runtime.rows import Row
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
