"""The panels of a figure, its title and its legend, in the sizes of a style."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from mpicomp.lab.experiment.canvas import blank_figure, legend_entries, plain_label
from mpicomp.lab.experiment.endlabels import MOST_CURVES, number_ends
from mpicomp.lab.experiment.styling import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend


def letters(inches: float, font: float) -> int:
    """The number of letters of ``font`` points that fit on a line of that many inches, at least 16."""
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
    width, height = figure.get_size_inches()
    shown = [plain_label(label) for label in labels]
    legend = _legend(figure, panels, style, shown)
    lines = [line for axes in panels for line in axes.get_title(loc="left").splitlines()]
    height += 0.8 * style.font * 1.25 * len(lines) / 72
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
        figure.suptitle(title, fontsize=1.2 * style.font, fontweight="bold")
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
