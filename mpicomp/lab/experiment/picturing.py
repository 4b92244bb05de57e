"""Results as a picture: a comparison's, or those of runs, of this process or recorded ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from os.path import commonpath
from pathlib import Path

from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.files import present
from mpicomp.lab.experiment.averaged import averaged, averaged_in
from mpicomp.lab.experiment.canvas import drawable
from mpicomp.lab.experiment.folder import read_run
from mpicomp.lab.experiment.lines import OPEN, Outcome
from mpicomp.lab.experiment.picture import SEEDS, Picture
from mpicomp.lab.experiment.results import Comparison, Record
from mpicomp.runtime.glance import NOT_FINISHED
from mpicomp.runtime.observation import FULL, NEVER
from mpicomp.runtime.result import Run
from mpicomp.runtime.rows import Row
from mpicomp.text.config import parse_method, parse_problem, to_text
from mpicomp.text.own_classes import without_imports


def picture_of(comparison: Comparison) -> Picture:
    """The comparison as curves; ``missing`` counts the runs of each method that diverged or are not finished.

    An unfinished run is drawn where no run of its method has ended: its last row is no end.
    """
    suite = comparison.suite
    ended: dict[str, list[list[Row]]] = {}
    begun: dict[str, list[list[Row]]] = {}
    for outcome in comparison.outcomes:
        if outcome.rows and outcome.status != "diverged":
            of = begun if outcome.status in OPEN else ended
            of.setdefault(outcome.label, []).append(outcome.rows)
    drawn = begun | ended
    curves = {drawable(entry.label): drawn[entry.label] for entry in suite.entries if entry.label in drawn}
    lines = comparison.lines()
    missing = [
        _counted("diverged", {line.label: line.diverged for line in lines}, len(suite.seeds)),
        _counted(NOT_FINISHED, {line.label: line.missing for line in lines}, len(suite.seeds)),
    ]
    subtitle = f"{drawable(to_text(suite.problem))}, {suite.workers} workers{_ranks(comparison.outcomes)}"
    if len(suite.seeds) > 1:
        subtitle += f"; {SEEDS['range']} {len(suite.seeds)} seeds"
    return Picture(
        drawable(suite.title), subtitle + _samples(suite.observation.observe), suite.workers, curves,
        suite.target, suite.x, suite.y, "; ".join(filter(None, missing)),
        suite.problem, comparison.data, suite.observation.observe == FULL,
    )  # fmt: skip


def _counted(what: str, runs: dict[str, int], seeds: int) -> str:
    """A text such as "diverged: GD (1 of 3 seeds)" of the number of runs by label; empty if all are 0."""
    named = [
        drawable(label) + (f" ({count} of {seeds} seeds)" if seeds > 1 else "")
        for label, count in runs.items()
        if count
    ]
    return f"{what}: {', '.join(named)}" if named else ""


def _samples(observe: int | str) -> str:
    """The subtitle's words on the samples that f is evaluated on; empty if these are all, or none."""
    return "" if observe in (FULL, NEVER) else f"; f of {observe} samples of each worker"


def _ranks(outcomes: Sequence[Outcome]) -> str:
    ranks = {o.summary["ranks"] for o in outcomes if "ranks" in o.summary}
    return f" on {ranks.pop()} MPI ranks" if len(ranks) == 1 and ranks != {1} else ""


def picture_of_folders(folders: Sequence[Path]) -> Picture:
    """The runs in these folders in one picture, each labelled by its folder and its method."""
    for folder in folders:
        if len(folders) > 1 and (present(folder / "suite.toml") or present(folder / "study.toml")):
            raise ConfigError(
                f"{folder} holds more than one run; a figure is of one comparison or study, or of runs. "
                f"Leave the other folders out, or name runs, as {folder}/runs/METHOD/seed-0."
            )
    runs = [_drawn(read_run(folder)) for folder in folders]
    paths = [folder.resolve() for folder in folders]
    alike, common = len({path.name for path in paths}) < len(set(paths)), commonpath(paths)
    names = [str(path.relative_to(common)) if alike else path.name for path in paths]
    pairs = zip(names, runs, strict=True)
    return _picture(
        ", ".join(names), runs, {f"{drawable(name)}: {run.method}": [run.rows] for name, run in pairs}
    )


def picture_of_runs(runs: Sequence[Run | Record]) -> Picture:
    """The given runs in one picture; the runs of one method make one curve, whatever their seeds.

    Where they differ in the blocks of their messages, in f(x⁰), which no seed changes, or in the number of
    rounds at which they were cut off, or only some are finished, their curves say so and are apart.  Raises
    ``ConfigError`` if the runs differ in problem, data, number of workers or observed samples.
    """
    drawn = [_drawn(run) for run in runs]
    alike: dict[str, list[_Drawn]] = {}
    for run in drawn:
        alike.setdefault(run.method, []).append(run)
    curves: dict[str, list[list[Row]]] = {}
    for method, seeds in alike.items():
        several = len({run.cut_off for run in seeds} - {""}) > 1
        manners: dict[tuple[str, ...], list[list[Row]]] = {}
        for run in seeds:
            manners.setdefault((*run.manner, run.cut_off if several else ""), []).append(run.rows)
        varied = [len(set(parts)) > 1 for parts in zip(*manners, strict=True)]
        for manner, rows in manners.items():
            curves["; ".join([method, *filter(None, compress(manner, varied))])] = rows
    return _picture("", drawn, curves)


@dataclass(frozen=True)
class _Drawn:
    """A run of this process, or a recorded one, as a figure tells of it."""

    rows: list[Row]
    method: str  # as it was asked for; a record names one of the user's own by its ``repr``
    problem: str  # its ``repr``
    workers: int
    averaged: str  # see the module ``averaged``
    observe: str
    status: str  # ``NOT_FINISHED`` where the record does not say
    lost: bool  # whether f of some row is the mean over fewer workers, because ranks have died
    data: str | None = None  # the fingerprint, where a record has it

    @property
    def manner(self) -> tuple[str, ...]:
        """How messages are averaged, f(x⁰), whether it is finished: the runs of one curve have them alike."""
        known = self.observe == FULL and self.rows  # samples that are drawn by the seed have another f(x⁰)
        start = f"f(x⁰) = {self.rows[0].f:.6g}" if known else ""
        return self.averaged, start, NOT_FINISHED if self.status in OPEN else "finished"

    @property
    def cut_off(self) -> str:
        """The rounds after which it had done all that it was allowed; empty if something else ended it."""
        return f"{self.rows[-1].round} rounds" if self.rows and self.status == "rounds" else ""


def _drawn(run: Run | Record) -> _Drawn:
    """``run`` as a figure tells of it.  Raises ``RecordError`` if a record lacks a fact."""
    if isinstance(run, Run):
        method, problem, lost = drawable(to_text(run.asked)), repr(run.problem), bool(run.lost)
        how = averaged(run.server, run.blocks)
        return _Drawn(run.rows, method, problem, run.workers, how, str(run.observe), run.status, lost)
    method, config = _said(run, "asked", "method"), run.config.get("config", {})
    with suppress(ConfigError), without_imports():
        method = to_text(parse_method(method))
    return _Drawn(
        run.rows,
        drawable(method),
        _said(run, "config", "problem"),
        int(_said(run, "config", "workers")),
        averaged_in(config),
        str(config.get("observe", FULL)),  # a record leaves the default out
        run.status,
        bool(run.config.get("lost")),
        run.data,
    )


def _said(record: Record, part: str, name: str) -> str:
    """A fact of run.json.  Raises ``RecordError`` if it lacks it."""
    fact = str(record.config.get(part, {}).get(name, ""))
    if not fact:
        raise RecordError(
            f"{record.folder}/run.json does not say {part}.{name}, which a figure needs: it is no record of "
            "a run, or of another version."
        )
    return fact


def _picture(title: str, runs: Sequence[_Drawn], curves: dict[str, list[list[Row]]]) -> Picture:
    """The picture of ``runs``.

    Raises ``ConfigError`` if they differ in problem, number of workers, data or ``observe``.
    """
    if len({(run.problem, run.workers) for run in runs}) > 1:
        raise ConfigError("these runs differ in their problem or number of workers; plot them apart.")
    data = list(dict.fromkeys(run.data for run in runs if run.data is not None))
    if len(data) > 1:
        raise ConfigError(
            "these runs are of other data each, though their problem has one name: their fingerprints are "
            f"{', '.join(data)}. Plot them apart."
        )
    observed = dict.fromkeys(run.observe for run in runs)
    if len(observed) > 1:
        raise ConfigError(
            f"these runs observe f on other samples each (observe = {', '.join(observed)}), so "
            "their f are other functions. Plot them apart."
        )
    problem, n, observe, parsed = runs[0].problem, runs[0].workers, runs[0].observe, None
    with suppress(ConfigError), without_imports():  # a problem of the user's own keeps its repr
        parsed = parse_problem(problem)
        problem = to_text(parsed)
    subtitle = f"{drawable(problem)}, {n} workers{_samples(observe)}"
    full = observe == FULL and not any(run.lost for run in runs)
    return Picture(
        drawable(title), subtitle, n, curves, problem=parsed, data=data[0] if data else None, full=full
    )
