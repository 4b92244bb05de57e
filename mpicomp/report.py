"""Tables and figures of what was recorded, from the files alone.  The only module that draws.

A comparison's folder gets ``table.md``, ``table.json`` and ``figure.png``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mpicomp.config import parse_problem, to_text
from mpicomp.errors import ConfigError, RecordError
from mpicomp.files import read_json, write_json, write_text
from mpicomp.record import Row, read_rows
from mpicomp.results import Comparison, Outcome, read_comparison
from mpicomp.tables import Line, human_bytes, markdown, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Wong's colours for every kind of sight, without the yellow; black and grey first, two of Tol's added.
COLOURS = (
    "#000000",
    "#7f7f7f",
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#882255",
    "#999933",
)
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = "osD^vPX*<>hd"
Across = Callable[[Row], float]  # what a panel's x axis shows of a row

WIDE = 12.0  # methods whose bytes differ by this factor get a logarithmic axis


@dataclass(frozen=True)
class Picture:
    """What a figure shows.  ``curves`` has the runs of each label, one a seed."""

    title: str
    subtitle: str
    n: int
    curves: dict[str, list[list[Row]]]
    target: float | None = None


def publish(folder: str | Path) -> list[Line]:
    """Write the tables and the figure of the comparison in ``folder``; gives the table's lines."""
    folder = Path(folder)
    comparison = read_comparison(folder)
    lines = table(comparison)
    write_text(folder / "table.md", markdown(lines, comparison.suite))
    write_json(folder / "table.json", [asdict(line) for line in lines])
    picture = picture_of(comparison)
    if picture.curves:  # there is none if everything diverged, and the table says so
        save(draw(picture), folder / "figure.png")
    return lines


def plot(folders: Sequence[str | Path], path: str | Path | None = None) -> Path:
    """Redraw from saved rows: of one comparison's folder, or of one or several runs' folders.

    The figure goes to ``path``, else into the first folder as ``figure.png``; gives where it is.
    """
    places = [Path(f) for f in folders]
    if not places:
        raise ConfigError("plot needs a folder: that of a comparison, or of one or more runs.")
    target = Path(path) if path is not None else places[0] / "figure.png"
    if len(places) == 1 and (places[0] / "suite.toml").exists():
        save(draw(picture_of(read_comparison(places[0]))), target)
    else:
        save(draw(_picture_of_runs(places)), target)
    return target


def picture_of(comparison: Comparison) -> Picture:
    """A curve for each method of which some seed did not diverge."""
    suite = comparison.suite
    curves: dict[str, list[list[Row]]] = {}
    for outcome in comparison.outcomes:
        if outcome.summary.get("status") != "diverged" and outcome.rows:
            curves.setdefault(outcome.label, []).append(outcome.rows)
    subtitle = f"{to_text(suite.problem)}, {suite.workers} workers{_ranks(comparison.outcomes)}"
    if len(suite.seeds) > 1:
        subtitle += f"; median and range of {len(suite.seeds)} seeds"
    return Picture(suite.title, subtitle, suite.workers, curves, suite.target_grad_norm_sq)


def _ranks(outcomes: Sequence[Outcome]) -> str:
    ranks = {o.summary["ranks"] for o in outcomes if "ranks" in o.summary}
    return f" on {ranks.pop()} MPI ranks" if len(ranks) == 1 and ranks != {1} else ""


def _picture_of_runs(folders: Sequence[Path]) -> Picture:
    """The runs side by side, each called after its folder."""
    curves: dict[str, list[list[Row]]] = {}
    facts = []
    for folder in folders:
        if not (folder / "run.json").exists():
            raise RecordError(f"{folder} holds neither a comparison nor a run.")
        config = read_json(folder / "run.json")["config"]
        facts.append((config["problem"], int(config["workers"])))
        name = folder.resolve().name
        curves[str(folder) if name in curves else name] = [read_rows(folder / "rows.csv")]
    if len(set(facts)) > 1:
        raise ConfigError("these runs differ in their problem or number of workers; plot them apart.")
    problem, n = facts[0]
    with suppress(ConfigError):  # a problem of the user's own keeps its repr
        problem = to_text(parse_problem(problem))
    return Picture(", ".join(curves), f"{problem}, {n} workers", n, curves)


def draw(picture: Picture) -> Figure:
    """|∇f|² against rounds, uplink bytes a worker, bytes both ways a worker, and seconds."""
    from matplotlib.figure import Figure

    if not any(len(rows) > 1 for runs in picture.curves.values() for rows in runs):
        raise RecordError("there is nothing to draw: no run has recorded more than its start.")
    figure = Figure(figsize=(11, 8.2), layout="constrained")
    panels = figure.subplots(2, 2, sharey=True)
    horizontal = {
        "rounds": lambda row: row.round,
        "uplink bytes per worker": lambda row: row.up_bytes / picture.n,
        "bytes in both directions, per worker": lambda row: (row.up_bytes + row.down_bytes) / picture.n,
        "seconds": lambda row: row.seconds,
    }
    for axes, (name, x) in zip(panels.flat, horizontal.items(), strict=True):
        _scale(axes, _draw_panel(axes, picture, x))
        axes.set_xlabel(name)
        if "bytes" in name:
            axes.xaxis.set_major_formatter(lambda value, _: human_bytes(value))
    for axes in panels[:, 0]:
        axes.set_ylabel(r"$\|\nabla f(x)\|^2$")
    figure.suptitle(picture.title, fontsize=15, fontweight="bold")
    panels[0, 0].set_title(picture.subtitle, loc="left", fontsize=9.5, color="#444444", pad=10)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    columns = min(len(labels), 5)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=10)
    return figure


def _draw_panel(axes: Axes, picture: Picture, x: Across) -> list[tuple[float, float]]:
    """Draw the curves; gives the x of the first observation after the start, and of the last, of each."""
    spans = []
    for i, (label, runs) in enumerate(picture.curves.items()):
        across, middle, low, high = _band(runs, x)
        spans.append((float(across[1:2].sum()), float(across[-1])))
        colour = COLOURS[i % len(COLOURS)]
        axes.fill_between(across, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(
            across,
            middle,
            label=label,
            color=colour,
            linestyle=DASHES[i % len(DASHES)],
            linewidth=1.8,
            marker=MARKERS[i % len(MARKERS)],
            markersize=5,
            markevery=(0.03 * (i % 5), 0.17),
        )
    if picture.target is not None:
        axes.axhline(picture.target, color="#444444", linewidth=0.9, linestyle=(0, (2, 3)), zorder=0)
        place = axes.get_yaxis_transform()  # x as a fraction of the panel, y as data
        axes.text(0.01, picture.target, "target", transform=place, va="bottom", fontsize=8, color="#444444")
    axes.set_yscale("log")
    axes.grid(True, which="major", color="#e2e2e2", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return spans


def _band(runs: Sequence[Sequence[Row]], x: Across) -> tuple[NDArray[np.float64], ...]:
    """Observation by observation over the seeds: median x; median, least and largest |∇f|².

    The curve ends where the median run does.  Until then a run that has ended holds its last metric,
    while x is that of the runs that go on.
    """
    length = sorted(map(len, runs))[len(runs) // 2]
    runs = [rows[:length] for rows in runs]
    across = np.full((len(runs), length), np.nan)
    metric = np.empty((len(runs), length))
    for i, rows in enumerate(runs):
        across[i, : len(rows)] = [x(row) for row in rows]
        metric[i] = [row.grad_norm_sq for row in rows] + [rows[-1].grad_norm_sq] * (length - len(rows))
    metric = np.maximum(metric, np.finfo(float).tiny)  # a gradient of exactly 0 still has a place
    return np.nanmedian(across, axis=0), np.median(metric, axis=0), metric.min(axis=0), metric.max(axis=0)


def _scale(axes: Axes, spans: Sequence[tuple[float, float]]) -> None:
    """A logarithmic x axis if the methods' ends are far apart."""
    from matplotlib.ticker import LogLocator, NullFormatter

    starts, ends = zip(*spans, strict=True)
    if max(ends) <= WIDE * min(ends):
        axes.set_xlim(left=0)
        return
    axes.set_xscale("log", nonpositive="mask")
    axes.set_xlim(left=min(start for start in starts if start > 0))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def save(figure: Figure, path: Path) -> None:
    """Write the figure as a PNG, or in whatever format the path's ending names."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=200)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}.") from None
    except ValueError as error:
        raise ConfigError(f"cannot write {path}: {error}.") from None
