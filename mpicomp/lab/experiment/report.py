"""Tables and figures of recorded runs, made from their files alone.

The folder of a comparison or a study gets ``table.md``, ``table.json`` and ``figure.png``, and where a study
has too many panels for one figure ``figure-2.png`` and so on.  A figure that cannot be drawn is left out,
with a warning: the tables are good without it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import compress
from os.path import commonpath
from pathlib import Path
from typing import Any

from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.files import as_path, os_errors_as, present, write_json, write_text
from mpicomp.lab.experiment.averaged import averaged, averaged_in
from mpicomp.lab.experiment.canvas import drawable, save
from mpicomp.lab.experiment.figure import SEEDS, Picture, draw, draw_all, pages
from mpicomp.lab.experiment.lines import OPEN, Line, Outcome
from mpicomp.lab.experiment.results import (
    Comparison,
    Record,
    read_case,
    read_comparison,
    read_run,
    read_study,
)
from mpicomp.lab.experiment.study import Study
from mpicomp.lab.experiment.styling import PLAIN, Look, check_format
from mpicomp.lab.experiment.tables import markdown
from mpicomp.runtime.glance import NOT_FINISHED
from mpicomp.runtime.observation import FULL, NEVER
from mpicomp.runtime.result import Run
from mpicomp.runtime.rows import Row
from mpicomp.text.config import parse_method, parse_problem, to_text
from mpicomp.text.own_classes import without_imports


def publish(folder: str | Path) -> list[Line]:
    """Write the tables and the figure of the comparison in ``folder``; returns the table's lines."""
    folder = as_path("folder", folder)
    comparison = read_comparison(folder)
    lines = comparison.lines()
    write_text(folder / "table.md", markdown(lines, comparison.suite))
    write_json(folder / "table.json", [asdict(line) for line in lines])
    picture = picture_of(comparison)
    _draw_into(folder, [picture], lambda pictures: [draw(*pictures)])
    return lines


def publish_study(folder: str | Path) -> dict[str, list[Line]]:
    """Write the tables and figures of a study: of each case, and of all cases together.

    Returns the lines of the tables by the cases' labels.
    """
    folder = as_path("folder", folder)
    study = read_study(folder)
    lines = {case.label: publish(folder / case.slug) for case in study.cases}
    tables = [(folder / case.slug / "table.md").read_text(encoding="utf-8") for case in study.cases]
    write_text(folder / "table.md", "\n".join(tables))
    write_json(folder / "table.json", {label: [asdict(line) for line in ls] for label, ls in lines.items()})
    pictures = _pictures(folder, study)
    _draw_into(folder, pictures, partial(_draw_study, drawable(study.title)), len(pages(pictures)))
    return lines


def _draw_into(
    folder: Path, pictures: list[Picture], drawing: Callable[[list[Picture]], list[Any]], most: int = 1
) -> None:
    """Save the figures of ``pictures`` as figure.png, figure-2.png, ..; remove up to ``most`` old ones first.

    Saves none if there are no curves.  Warns, and saves none, if they cannot be drawn, as without matplotlib.
    Raises ``RecordError`` if an old figure cannot be removed.
    """
    for old in _numbered(folder / "figure.png", most):
        with os_errors_as(RecordError, f"cannot replace {old}"):
            old.unlink(missing_ok=True)
    if not any(picture.curves for picture in pictures):
        return
    try:
        figures = drawing(pictures)
    except (ConfigError, RecordError) as error:
        warnings.warn(f"no figure in {folder}: {error}", stacklevel=3)
        return
    _save(figures, folder / "figure.png")


def _draw_study(title: str, pictures: list[Picture]) -> list[Any]:
    """The figures of a study: one, or several where one would have too many panels."""
    drawn = [page for page in pages(pictures) if any(picture.curves for picture in page)]
    if not drawn:
        raise RecordError("there is nothing to draw: every run diverged.")
    return [draw_all(title, page) for page in drawn]


def _save(figures: Sequence[Any], path: Path) -> list[Path]:
    """Save the figures as ``path`` and so on; returns the paths."""
    paths = _numbered(path, len(figures))
    for figure, place in zip(figures, paths, strict=True):
        save(figure, place)
    return paths


def _numbered(path: Path, count: int) -> list[Path]:
    """``path``, and the paths of the second and later figures, with -2, -3 after its stem."""
    return [path, *(path.with_stem(f"{path.stem}-{i}") for i in range(2, count + 1))]


def _pictures(folder: Path, study: Study) -> list[Picture]:
    """The pictures of a study's cases, each titled with the case's label."""
    pictures = {case.label: picture_of(read_case(folder, case)) for case in study.cases}
    return [replace(picture, title=drawable(label)) for label, picture in pictures.items()]


def plot_files(
    folders: Sequence[str | Path],
    path: str | Path | None = None,
    look: Look = PLAIN,
    format: str | None = None,
) -> list[Path]:
    """Redraw a figure from saved rows; returns its path, or several for a study with many panels.

    ``folders`` is one folder, of a comparison or a study, or any number of folders of runs.  The figure is
    written to ``path``, by default to ``figure.png`` in the first folder, or in another ``format``.  Raises
    ``ConfigError`` if there is no folder, the runs differ in problem, data or workers, or ``path`` ends in
    another format than ``format``; ``RecordError`` if a folder cannot be read.
    """
    places = [as_path("folder", f) for f in folders]
    if not places:
        raise ConfigError("plot needs a folder: that of a comparison, or of one or more runs.")
    target = _target(places[0], path, format)
    if len(places) == 1 and present(places[0] / "study.toml"):
        study = read_study(places[0])
        pictures = [picture.with_look(look) for picture in _pictures(places[0], study)]
        return _save(_draw_study(drawable(study.title), pictures), target)
    if len(places) == 1 and present(places[0] / "suite.toml"):
        picture = picture_of(read_comparison(places[0]))
    else:
        picture = _picture_of_runs(places)
    return _save([draw(picture.with_look(look))], target)


def _target(folder: Path, path: str | Path | None, format: str | None) -> Path:
    """The file to write.  Raises ``ConfigError`` if the name and the format disagree."""
    if format is not None:
        check_format(format)
    if path is None:
        return folder / f"figure.{format or 'png'}"
    path = as_path("path", path, "file")
    if os.path.isdir(path):
        raise ConfigError(f"{path} is a folder: name a file, such as {path / 'figure.png'}.")
    if not path.suffix:
        return path.with_name(f"{path.name}.{format or 'png'}")
    if format is None or path.suffix == f".{format}":
        return path
    raise ConfigError(
        f"{path} ends in {path.suffix}, and the format is {format}; allowed: a name that ends in .{format}, "
        "or no format, and the name says it."
    )


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


def _picture_of_runs(folders: Sequence[Path]) -> Picture:
    """The given runs in one picture, each labelled by its folder and its method."""
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
