"""Numbers at the ends of curves, where there are more curves than colours that a reader can tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MOST_CURVES = 6  # a panel with more has the number of each curve at its end


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
