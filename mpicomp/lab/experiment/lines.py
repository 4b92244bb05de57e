"""The results of a comparison: the outcome of each run, and one line for each method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from statistics import median
from typing import Any

from mpicomp.base.errors import ConfigError
from mpicomp.lab.experiment.suite import Entry, Suite
from mpicomp.lab.experiment.trials import Tuning
from mpicomp.lab.experiment.tuning import rose, tail
from mpicomp.runtime.glance import NOT_FINISHED, run_line
from mpicomp.runtime.rows import Row
from mpicomp.text.literals import read_parameter

OPEN = ("interrupted", NOT_FINISHED)  # the statuses of runs that have not come to their end


@dataclass(frozen=True)
class Outcome:
    """One run as recorded in its folder.  ``summary`` is empty while the run is under way."""

    label: str
    seed: int
    rows: list[Row]
    summary: dict[str, Any]

    @property
    def status(self) -> str:
        """What ended the run; ``NOT_FINISHED`` while it is under way."""
        status: str = self.summary.get("status", NOT_FINISHED)
        return status

    def __repr__(self) -> str:
        return run_line(f"Outcome of {self.label} with seed {self.seed}", self.rows, self.status)


@dataclass(frozen=True)
class End:
    """The end of the run with one seed: its status, its costs, its quality.  Bytes are summed over workers.

    Where the suite has a target, all but ``status`` are of the row that ``Limits.row_of_costs`` names.  Else
    they are of the last row, and ``f`` and ``grad_norm_sq`` are means over the last tenth of the rounds.
    """

    seed: int
    status: str
    rounds: int
    up_bytes: int
    total_bytes: int
    f: float
    grad_norm_sq: float
    error: float | None  # None for a method without error feedback
    start_f: float  # f(x⁰)
    rose: bool  # whether f ended above f(x⁰); see ``tuning.rose``


@dataclass(frozen=True)
class Line:
    """One method: medians over its seeds, at the end of the runs.  None where no seed finished.

    The costs are the costs of reaching the target if ``reached`` equals ``finished``; otherwise they are
    what the runs spent.  ``step`` is the step size as asked for, ``gamma`` its value.
    """

    label: str
    step: str
    at_edge: bool  # whether tuning chose a step at an end of its range
    seeds: int
    finished: int
    diverged: int
    reached: int
    gamma: float | None = None
    grad_norm_sq: float | None = None
    rounds: float | None = None
    up_bytes_per_worker: float | None = None
    paper_bytes_up_per_worker: float | None = None
    paper_bytes_down_per_worker: float | None = None
    total_bytes: float | None = None
    seconds: float | None = None
    epochs: float | None = None
    error: float | None = None
    f: float | None = None
    set_up_bytes_per_worker: float | None = None
    trials: int = 0  # number of step sizes that the suite asks to try
    formats: tuple[str, ...] = ()  # wire formats of the numbers it sends, both directions
    ends: tuple[End, ...] = ()  # one for each seed that finished

    @property
    def missing(self) -> int:
        """The number of seeds whose run neither finished nor diverged."""
        return self.seeds - self.finished - self.diverged

    @property
    def rose(self) -> int:
        """The number of seeds with which f ended above f(x⁰)."""
        return sum(end.rose for end in self.ends)


def lines_of(suite: Suite, tunings: Mapping[str, Tuning], outcomes: Sequence[Outcome]) -> list[Line]:
    """A line for each method of ``suite``, in its order; ``tunings`` are by label."""
    return [
        _line(suite, entry, tunings.get(entry.label), [o for o in outcomes if o.label == entry.label])
        for entry in suite.entries
    ]


def _line(suite: Suite, entry: Entry, tuning: Tuning | None, outcomes: list[Outcome]) -> Line:
    n, status = suite.workers, Counter(o.status for o in outcomes)
    finished = [o for o in outcomes if o.status not in ("diverged", *OPEN)]
    line = Line(
        label=entry.label,
        step=str(tuning.best.gamma if tuning else entry.method.step),
        at_edge=tuning is not None and tuning.at_edge,
        seeds=len(suite.seeds),
        finished=len(finished),
        diverged=status["diverged"],
        reached=status["target"],
        trials=entry.trials,
        formats=tuple(sorted(set(_formats(entry.method)))),
    )
    if not finished:
        return line
    last = [suite.limits.row_of_costs(o.rows, o.status) for o in finished]
    ends = tuple(_end(o, row, suite) for o, row in zip(finished, last, strict=True))
    errors = [end.error for end in ends if end.error is not None]
    return replace(
        line,
        gamma=_gamma(finished[0], entry.method.step_name),
        grad_norm_sq=median(end.grad_norm_sq for end in ends),
        rounds=median(row.round for row in last),
        up_bytes_per_worker=median(row.up_bytes for row in last) / n,
        paper_bytes_up_per_worker=median(row.paper_bits_up for row in last) / 8 / n,
        paper_bytes_down_per_worker=median(row.paper_bits_down for row in last) / 8 / n,
        total_bytes=median(row.up_bytes + row.down_bytes for row in last),
        seconds=median(row.seconds for row in last),
        epochs=median(row.epochs for row in last),
        error=median(errors) if errors else None,
        f=median(end.f for end in ends),
        set_up_bytes_per_worker=median(o.summary.get("set_up_bytes", 0) for o in finished) / n,
        ends=ends,
    )


def _gamma(outcome: Outcome, name: str) -> float | None:
    """The step size, which the method's text has as a number under ``name``; None if it has none there."""
    with suppress(ConfigError, TypeError, ValueError):  # of a class that is not imported
        return float(read_parameter(outcome.summary["method"], name))
    return None


def _end(outcome: Outcome, last: Row, suite: Suite) -> End:
    """The end of a run whose costs are those of the row ``last``."""
    rows = outcome.rows
    seen = [last] if suite.target is not None else tail(rows)

    def mean(name: str) -> float:
        return sum(getattr(row, name) for row in seen) / len(seen)

    return End(
        outcome.seed,
        outcome.status,
        last.round,
        last.up_bytes,
        last.up_bytes + last.down_bytes,
        mean("f"),
        mean("grad_norm_sq"),
        last.error,
        rows[0].value,
        rose(rows),
    )


def _formats(held: Any) -> Iterator[str]:
    """The field ``values`` of a method and of all compressors in it, at any depth."""
    for f in fields(held):
        value = getattr(held, f.name, None)
        if f.name == "values" and isinstance(value, str):  # of a class of one's own it may be anything
            yield value
        elif is_dataclass(value):
            yield from _formats(value)
