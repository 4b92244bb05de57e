"""The figure of a comparison or a study: convergence of the runs against their costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import RecordError
from mpicomp.base.units import human_bytes
from mpicomp.experiment.canvas import COLOURS, DASHES, MARKERS, blank_figure, finish, plain_label
from mpicomp.runtime.record import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ABREAST = 4  # panels in a row, at most
Value = Callable[[Row], float]  # the number in a row that an axis shows


def _number(value: float | None) -> float:
    """``value``, NaN for what was not observed."""
    return np.nan if value is None else value


WIDE = 12.0  # x axes are logarithmic where the curves' ends differ by more than this factor
_BYTES = {"up", "both"}

VERTICAL: dict[str, tuple[str, Value]] = {
    "gradient": (r"$\|\nabla f(x)\|^2$", lambda row: _number(row.grad_norm_sq)),
    "f": ("$f(x)$", lambda row: _number(row.f)),
    "error": (r"total error $\sum_k\,\|e^k\|^2$", lambda row: row.error or np.nan),  # 0 at the start
}


@dataclass(frozen=True)
class Picture:
    """What the panels of one problem show.

    n        number of workers
    curves   label -> the runs of that method, one for each seed, each a list of rows
    target   the squared gradient norm to mark, if any
    x, y     names out of ``suite.AXES``; each x gets a panel
    missing  a text that names the runs that cannot be drawn
    """

    title: str
    subtitle: str
    n: int
    curves: dict[str, list[list[Row]]]
    target: float | None = None
    x: tuple[str, ...] = ("rounds", "up", "both", "seconds")
    y: str = "gradient"
    missing: str = ""


def horizontal(n: int) -> dict[str, tuple[str, Value]]:
    """The label and the value of each x axis; byte counts are divided by n, the number of workers."""
    return {
        "rounds": ("rounds", lambda row: row.round),
        "up": ("uplink bytes per worker", lambda row: row.up_bytes / n),
        "both": (
            "bytes in both directions, per worker",
            lambda row: (row.up_bytes + row.down_bytes) / n,
        ),
        "seconds": ("seconds", lambda row: row.seconds),
        "epochs": ("passes over the samples", lambda row: row.epochs),
    }


def draw(picture: Picture) -> Figure:
    """A figure with the panels of one problem."""
    rows = 1 if len(picture.x) < ABREAST else 2
    columns = -(-len(picture.x) // rows)
    figure, panels = blank_figure(rows, columns, sharey=True)
    _draw_problem(panels, picture, list(picture.curves))
    for axes in panels[::columns]:
        axes.set_ylabel(VERTICAL[picture.y][0])
    subtitle = _titled(picture.subtitle, picture.missing, 150 if columns > 1 else 70)
    panels[0].set_title(subtitle, loc="left", fontsize=9.5, color="#444444", pad=10)
    return finish(figure, panels, picture.title)


def draw_panel(picture: Picture, axes: Axes | None) -> Axes:
    """The panel of the picture's one x axis, in ``axes`` or in a new figure; returns the axes."""
    if axes is None:
        return draw(picture).axes[0]
    _draw_problem([axes], picture, list(picture.curves))
    axes.set_ylabel(VERTICAL[picture.y][0])
    axes.legend(frameon=False)
    return axes


def draw_all(title: str, pictures: Sequence[Picture]) -> Figure:
    """A figure with the problems of a study side by side, and a row of panels for each x axis.

    If there is one x axis only, its panels may fill several rows.  A problem without curves gets a note of
    the missing runs in place of axes.  Raises ``RecordError`` if no problem has curves.
    """
    if not any(picture.curves for picture in pictures):
        raise RecordError("there is nothing to draw: every run diverged.")
    x = len(pictures[0].x)
    rows = x if x > 1 else -(-len(pictures) // ABREAST)
    columns = -(-len(pictures) * x // rows)
    figure, panels = blank_figure(rows, columns, sharey=False)
    labels = list(dict.fromkeys(label for picture in pictures for label in picture.curves))
    for i, picture in enumerate(pictures):
        own = panels[i::columns] if x > 1 else panels[i : i + 1]
        own[0].set_title(_titled(picture.title, picture.missing, 55 if columns < 3 else 42), fontsize=10.5)
        if picture.curves:
            _draw_problem(own, picture, labels)
        else:
            for axes in own:
                axes.set_axis_off()
    for axes in panels[::columns]:
        axes.set_ylabel(VERTICAL[pictures[0].y][0])
    for axes in panels[len(pictures) * x :]:
        axes.remove()
    return finish(figure, panels[: len(pictures) * x], title)


def _titled(above: str, missing: str, width: int) -> str:
    return "\n".join([above, *map(plain_label, wrap(missing, width))])


def _draw_problem(panels: Sequence[Axes], picture: Picture, labels: list[str]) -> None:
    """Fill the panels of one problem; a label's place in ``labels`` gives its colour throughout a study.

    Raises ``RecordError`` if no run has a row after its start.
    """
    drawn = [rows for runs in picture.curves.values() for rows in runs]
    if not any(len(rows) > 1 for rows in drawn):
        raise RecordError("there is nothing to draw: no run has recorded more than its start.")
    if any(row.f is None for rows in drawn for row in rows):
        raise RecordError(
            "a run has not observed f and its gradient (observe = never): there is no curve of it."
        )
    known = horizontal(picture.n)
    spans = {
        name: _draw_panel(axes, picture, known[name][1], labels)
        for axes, name in zip(panels, picture.x, strict=True)
    }
    wide = {name for name, ends in spans.items() if _wide(ends)}
    if wide & _BYTES:
        wide |= _BYTES  # readers compare these two panels: same scale in both
    for axes, name in zip(panels, picture.x, strict=True):
        label, _ = known[name]
        _scale(axes, spans[name], name in wide)
        axes.set_xlabel(label)
        if "bytes" in label:
            axes.xaxis.set_major_formatter(lambda value, _: human_bytes(value))


def _draw_panel(axes: Axes, picture: Picture, x: Value, labels: list[str]) -> list[tuple[float, float]]:
    """Draw the curves; returns, for each, x at the first observation after the start and x at the last."""
    spans, positive, zero = [], [np.inf], False
    logarithmic = picture.y != "f"  # a function value may be negative
    for label, runs in picture.curves.items():
        i = labels.index(label)
        across, middle, low, high = _band(runs, x, VERTICAL[picture.y][1])
        spans.append((float(across[1:2].sum()), float(across[-1])))
        positive.append(float(low[low > 0].min(initial=np.inf)))
        zero = zero or bool((low == 0).any())
        colour = COLOURS[i % len(COLOURS)]
        axes.fill_between(across, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(
            across,
            middle,
            label=plain_label(label),
            color=colour,
            linestyle=DASHES[i % len(DASHES)],
            linewidth=1.8,
            marker=MARKERS[i % len(MARKERS)],
            markersize=5,
            markevery=(0.03 * (i % 5), 0.17),
        )
    if picture.target is not None and picture.y == "gradient":
        axes.axhline(picture.target, color="#444444", linewidth=0.9, linestyle=(0, (2, 3)), zorder=0)
        place = axes.get_yaxis_transform()  # x as a fraction of the panel, y as data
        axes.text(0.01, picture.target, "target", transform=place, va="bottom", fontsize=8, color="#444444")
    if logarithmic:
        axes.set_yscale("log", nonpositive="clip")
        if zero and min(positive) < np.inf:
            axes.set_ylim(bottom=min(positive) / 10)  # where a value is exactly 0 the curve leaves below
    axes.grid(True, which="major", color="#e2e2e2", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return spans


def _band(runs: Sequence[Sequence[Row]], x: Value, y: Value) -> tuple[NDArray[np.float64], ...]:
    """For each observation, over the seeds: median x; then median, least and largest y.

    Four arrays of one length, that of the median run.  A run that ended earlier counts with its last y; the
    median x is taken over the runs that go on.
    """
    length = sorted(map(len, runs))[len(runs) // 2]
    runs = [rows[:length] for rows in runs]
    across = np.full((len(runs), length), np.nan)
    metric = np.empty((len(runs), length))
    for i, rows in enumerate(runs):
        across[i, : len(rows)] = [x(row) for row in rows]
        metric[i] = [y(row) for row in rows] + [y(rows[-1])] * (length - len(rows))
    # The median may fall when a run ends and leaves it to the others.
    along = np.maximum.accumulate(np.nanmedian(across, axis=0))
    return along, np.median(metric, axis=0), metric.min(axis=0), metric.max(axis=0)


def _wide(spans: Sequence[tuple[float, float]]) -> bool:
    """Whether the last x of the curves differ by more than the factor ``WIDE``."""
    ends = [end for _, end in spans]
    return max(ends) > WIDE * min(ends)


def _scale(axes: Axes, spans: Sequence[tuple[float, float]], logarithmic: bool) -> None:
    """Set the scale, the limits and the ticks of the x axis."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    if not logarithmic:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        return
    axes.set_xscale("log", nonpositive="mask")
    axes.set_xlim(left=min(start for start, _ in spans if start > 0))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
