"""The panels of a figure, its title, its legend and the numbers of its curves, in the sizes of a style."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from mpicomp.lab.experiment.canvas import blank_figure, legend_entries, plain_label, plain_title
from mpicomp.lab.experiment.styling import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

MOST_CURVES = 6  # more than a reader can tell apart: each then has a number at its end


def letters(inches: float, font: float) -> int:
    """The number of letters of ``font`` points that fit on a line ``inches`` long; at least 16."""
    return max(16, int(inches * 72 / (0.56 * font)))


def panels_of(style: Style, rows: int, columns: int, sharey: bool) -> tuple[Figure, list[Axes]]:
    """A figure without title and legend, and its rows x columns panels, row by row."""
    width, height = style.panel
    figure, panels = blank_figure(rows, columns, sharey, (columns * width, rows * height))
    for axes in panels:
        axes.tick_params(labelsize=0.9 * style.font)
        axes.xaxis.label.set_fontsize(style.font)
        axes.yaxis.label.set_fontsize(style.font)
    return figure, panels


def complete(figure: Figure, panels: Sequence[Axes], title: str, style: Style, labels: list[str]) -> Figure:
    """Add title, legend and, where there are many curves, the numbers at their ends; returns the figure.

    The figure grows by the space that these take.  ``labels`` has the curves' labels, in number order.
    """
    from mpicomp.lab.experiment.glyphs import borrow_glyphs

    width, height = figure.get_size_inches()
    shown = [plain_label(label) for label in labels]
    legend = _legend(figure, panels, style, shown)
    lines = [line for axes in panels for line in axes.get_title(loc="left").splitlines()]
    height += 0.8 * style.font * 1.25 * len(lines) / 72
    borrow_glyphs(figure)
    figure.set_size_inches(width, 4 * height)  # room enough to measure in
    figure.draw_without_rendering()
    box = legend.get_window_extent()
    if len(panels) == 1 and style.titled and box.width < 0.75 * width * figure.dpi:
        legend.set_loc("outside right center")
        figure.set_size_inches(width + box.width / figure.dpi, max(height, box.height / figure.dpi))
    else:
        figure.set_size_inches(width, height + box.height / figure.dpi)
    if style.titled:
        width, height = figure.get_size_inches()
        if "$" not in title:  # a formula is not cut
            title = "\n".join(wrap(title, letters(width, 1.35 * style.font), break_on_hyphens=False))
        borrow_glyphs(figure.suptitle(plain_title(title), fontsize=1.2 * style.font, fontweight="bold"))
        figure.set_size_inches(width, height + 1.2 * style.font * 1.4 * (1 + title.count("\n")) / 72)
    if len(labels) > MOST_CURVES:
        number_ends(figure, panels, shown, 0.62 * style.font)
    return figure


def _legend(figure: Figure, panels: Sequence[Axes], style: Style, labels: list[str]) -> Legend:
    """The legend of all panels, with numbers where there are many curves; long labels fill several lines."""
    font = 0.9 * style.font
    room = figure.get_size_inches()[0]
    entries = legend_entries(panels)
    names = [label for label in labels if label in entries]
    texts = names
    if len(labels) > MOST_CURVES:
        texts = [f"{labels.index(label) + 1}  {label}" for label in names]
    inches = (0.75 + 0.08 * max(map(len, texts))) * font / 10  # the longest entry, its line sample included
    single = len(panels) == 1 and style.titled
    legend = figure.legend(
        [entries[label] for label in names],
        ["\n".join(wrap(text, letters(room - 6 * font / 72, font))) for text in texts],
        loc="outside lower center",
        ncols=1 if single else min(len(names), max(1, int(1.15 * room / inches))),
        frameon=False,
        fontsize=font,
    )
    if len(labels) > MOST_CURVES:
        for line in legend.get_lines():
            line.set_marker("")
    return legend


def number_ends(figure: Figure, panels: Sequence[Axes], labels: Sequence[str], size: float) -> None:
    """Write its number at the end of each curve: 1 for the first of ``labels``, and so on.

    A number that would overlap another one is moved up, or down where the panel has no room above.  ``size``
    is the size of the numbers in points.  The curves lose their markers.
    """
    figure.draw_without_rendering()  # which gives the panels their places
    height, width = size * 1.25 * figure.dpi / 72, size * 1.5 * figure.dpi / 72
    for axes in panels:
        box, taken = axes.get_window_extent(), list[tuple[float, float]]()
        for line in sorted(axes.get_lines(), key=lambda line: -_end(line)[0]):
            if line.get_label() not in labels:
                continue
            x, y = axes.transData.transform(_end(line))
            if not np.isfinite([x, y]).all() or not box.x0 - 1 <= x <= box.x1 + 1:
                continue
            y = float(np.clip(y, box.y0 + height / 2, box.y1 - height / 2))
            place = _free(y, x, taken, width, height, box.y1)
            taken.append((x, place))
            end = axes.transData.inverted().transform((x, y))
            axes.annotate(
                str(labels.index(line.get_label()) + 1),
                (float(end[0]), float(end[1])),
                (0, (place - y) * 72 / figure.dpi),
                textcoords="offset points",
                ha="center",
                va="center",
                fontsize=size,
                fontweight="bold",
                color="white",
                bbox={"boxstyle": "circle,pad=0.12", "facecolor": line.get_color(), "edgecolor": "white"},
                zorder=6,
            ).set_in_layout(False)
            line.set_marker("")


def _end(line: Line2D) -> tuple[float, float]:
    """The last point of the curve with a finite height."""
    x, y = (np.asarray(data, float) for data in (line.get_xdata(), line.get_ydata()))
    seen = np.flatnonzero(np.isfinite(y))
    return (float(x[seen[-1]]), float(y[seen[-1]])) if seen.size else (np.nan, np.nan)


def _free(
    y: float, x: float, taken: list[tuple[float, float]], width: float, height: float, top: float
) -> float:
    """The height nearest to ``y`` and not below it, or else below it, that no number has taken near x."""
    near = [b for a, b in taken if abs(a - x) < width]
    steps = np.arange(200) * height / 8
    for place in (*(y + steps[y + steps < top - height / 2]), *(y - steps)):
        if all(abs(place - b) >= height for b in near):
            return float(place)
    return y
