"""The figure of a comparison or a study: convergence of the runs against their costs."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.units import human_bytes
from mpicomp.lab.experiment.canvas import (
    curve_style,
    plain_axes,
    plain_label,
    plain_title,
    without_tex,
)
from mpicomp.lab.experiment.layout import complete, letters, panels_of
from mpicomp.lab.experiment.picture import Picture, Value, band, height_label, heights_of, horizontal
from mpicomp.lab.experiment.styling import FARTHEST, Look, Range

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ABREAST = 3  # panels in a row, at most
MOST_PANELS = 6  # in a figure; a study with more gets several figures
# An x axis is logarithmic where this share of the curves, or more, ends within this part of the range.
SHARE, LEFT = 1 / 4, 1 / 5
_BYTES = {"up", "both"}


@without_tex()
def draw(picture: Picture) -> Figure:
    """A figure with the panels of one problem."""
    rows = 1 if len(picture.x) <= 2 + picture.style.titled * (len(picture.x) == ABREAST) else 2
    columns = -(-len(picture.x) // rows)
    figure, panels = panels_of(picture.style, rows, columns, sharey=True)
    for axes in panels[len(picture.x) :]:
        axes.remove()
    panels = panels[: len(picture.x)]
    _draw_problem(panels, picture, list(picture.curves))
    for axes in panels[::columns]:
        axes.set_ylabel(height_label(picture))
    font = 0.8 * picture.style.font
    line = letters(columns * picture.style.panel[0] - 1, font)
    above = picture.subtitle if picture.style.titled else ""
    subtitle = "\n".join(map(plain_label, [*wrap(above, line), *wrap(picture.missing, line)]))
    panels[0].set_title(subtitle, loc="left", fontsize=font, color="#444444", pad=10)
    return complete(figure, panels, picture.title, picture.style, list(picture.curves))


@without_tex()
def draw_panel(picture: Picture, axes: Axes | None) -> Axes:
    """The panel of the picture's one x axis, in ``axes`` or in a new figure; returns the axes.

    In axes that have curves already, the new ones get the colours that follow.
    """
    if axes is None:
        return draw(picture).axes[0]
    from mpicomp.lab.experiment.glyphs import borrow_glyphs

    drawn = axes.get_legend_handles_labels()[1]
    _draw_problem([axes], picture, [*("" for _ in drawn), *picture.curves])
    axes.set_ylabel(height_label(picture))
    borrow_glyphs(axes.legend(frameon=False))
    return axes


@without_tex()
def draw_all(title: str, pictures: Sequence[Picture]) -> Figure:
    """A figure with the problems of a study side by side, and a row of panels for each x axis.

    If there is one x axis only, its panels may fill several rows.  A problem without curves gets a note of
    the missing runs in place of axes; one problem at least has curves.
    """
    x = len(pictures[0].x)
    rows = x if x > 1 else -(-len(pictures) // ABREAST)
    columns = -(-len(pictures) * x // rows)
    style = pictures[0].style
    figure, panels = panels_of(style, rows, columns, sharey=False)
    labels = list(dict.fromkeys(label for picture in pictures for label in picture.curves))
    for i, picture in enumerate(pictures):
        own = panels[i::columns] if x > 1 else panels[i : i + 1]
        missing = map(plain_label, wrap(picture.missing, letters(style.panel[0] - 0.5, 0.85 * style.font)))
        own[0].set_title("\n".join([plain_title(picture.title), *missing]), fontsize=0.85 * style.font)
        if picture.curves:
            _draw_problem(own, picture, labels)
        else:
            for axes in own:
                axes.set_axis_off()
    heights = [height_label(picture) for picture in pictures]
    for k, axes in enumerate(panels[: len(pictures) * x]):
        i = k % columns if x > 1 else k
        if k % columns == 0 or heights[i] != heights[i - 1]:
            axes.set_ylabel(heights[i])
    for axes in panels[len(pictures) * x :]:
        axes.remove()
    return complete(figure, panels[: len(pictures) * x], title, style, labels)


def pages(pictures: Sequence[Picture]) -> list[list[Picture]]:
    """The pictures of a study, divided into figures of no more than ``MOST_PANELS`` panels each."""
    most = max(1, MOST_PANELS // len(pictures[0].x))
    count = -(-len(pictures) // most)
    each = -(-len(pictures) // count)
    return [list(pictures[i : i + each]) for i in range(0, len(pictures), each)]


def _draw_problem(panels: Sequence[Axes], picture: Picture, labels: list[str]) -> None:
    """Fill the panels of one problem; a label's place in ``labels`` gives its colour throughout a study.

    Raises ``RecordError`` if no run has a row after its start, or what the y axis shows.
    """
    drawn = [rows for runs in picture.curves.values() for rows in runs]
    if not any(len(rows) > 1 for rows in drawn):
        raise RecordError("there is nothing to draw: no run has recorded more than its start.")
    if any(row.f is None for rows in drawn for row in rows):
        raise RecordError(
            "a run has not observed f and its gradient (observe = never): there is no curve of it."
        )
    known = horizontal(picture.n)
    heights = heights_of(picture)
    if picture.y == "error" and not any(row.error for rows in drawn for row in rows):
        raise RecordError(
            "there is nothing to draw: no run has an error above 0. Methods with error feedback have one."
        )
    if not any(np.isfinite(heights(row)) for rows in drawn for row in rows):
        raise RecordError(f"there is nothing to draw: all values of {picture.y} are beyond {FARTHEST:g}.")
    spans = {
        name: _draw_panel(axes, picture, known[name][1], heights, labels)
        for axes, name in zip(panels, picture.x, strict=True)
    }
    wide = {name for name, ends in spans.items() if crushed([end for _, end in ends])}
    if wide & _BYTES:
        wide |= _BYTES  # readers compare these two panels: same scale in both
    for axes, name in zip(panels, picture.x, strict=True):
        label, _ = known[name]
        scale(axes, spans[name], name in wide)
        axes.set_xlabel(label)
        if "bytes" in label:
            axes.xaxis.set_major_formatter(lambda value, _: human_bytes(value))
        _limit(axes, picture.look)


def _limit(axes: Axes, look: Look) -> None:
    """Set the limits that were asked for.

    Raises ``ConfigError`` for 0 or less on a logarithmic y axis, and for one end beyond all curves.
    """
    if look.xlim is not None:
        low, high = look.xlim
        if axes.get_xscale() == "log" and low is not None and low <= 0:
            axes.set_xscale("linear")  # who asks for 0 asks for an axis that has it
        axes.set_xlim(low, high)
        _refuse_reversed("xlim", axes.get_xlim(), look.xlim)
    if look.ylim is not None:
        if axes.get_yscale() == "log" and any(end is not None and end <= 0 for end in look.ylim):
            raise ConfigError(
                "ylim has an end that is not above 0, and this y axis is logarithmic; allowed: ends above 0, "
                "such as 1e-8:1. The axis of y = f is not logarithmic."
            )
        axes.set_ylim(*look.ylim)
        _refuse_reversed("ylim", axes.get_ylim(), look.ylim)


def _refuse_reversed(name: str, axis: tuple[float, float], given: Range) -> None:
    """Raise ``ConfigError`` if the one end that was given lies beyond the end that the curves give."""
    low, high = axis
    if low >= high:
        shown = ":".join("" if end is None else f"{end:g}" for end in given)
        where = f"ends at {high:g}" if given[1] is None else f"begins at {low:g}"
        raise ConfigError(f"{name} = {shown!r}; allowed: an end on this axis, which {where}; or both ends.")


def _draw_panel(
    axes: Axes, picture: Picture, x: Value, y: Value, labels: list[str]
) -> list[tuple[float, float]]:
    """Draw the curves; returns, for each, the first x above 0, or 0 if there is none, and the last x."""
    spans, positive, zero = [], [np.inf], False
    logarithmic = picture.y != "f"  # a function value may be negative
    for label, runs in picture.curves.items():
        i = labels.index(label)
        across, middle, low, high = band(runs, x, y, picture.look.bands)
        spans.append((float(across[across > 0][:1].sum()), float(across[-1])))
        positive.append(float(low[low > 0].min(initial=np.inf)))
        zero = zero or bool((low == 0).any())
        style = curve_style(i)
        if picture.look.bands != "none":
            axes.fill_between(across, low, high, color=style["color"], alpha=0.15, linewidth=0)
        axes.plot(
            across,
            middle,
            label=plain_label(label),
            **style,
            linewidth=picture.style.line,
            markersize=2.8 * picture.style.line,
            markevery=(0.03 * (i % 5), 0.17) if np.isfinite(middle).any() else None,
        )
    if picture.target and picture.target < np.inf and picture.y == "gradient":  # 0 has no place on the axis
        axes.axhline(picture.target, color="#444444", linewidth=0.9, linestyle=(0, (2, 3)), zorder=0)
        place = axes.get_yaxis_transform()  # x as a fraction of the panel, y as data
        font = picture.style.font
        axes.text(
            0.01, picture.target, "target", transform=place, va="bottom", fontsize=0.7 * font, color="#444444"
        )
    if logarithmic and min(positive) < np.inf:
        axes.set_yscale("log", nonpositive="clip")
        if zero:
            axes.set_ylim(bottom=min(positive) / 10)  # where a value is exactly 0 the curve leaves below
    plain_axes(axes)
    return spans


def crushed(ends: Sequence[float]) -> bool:
    """Whether a linear x axis is too coarse: a share ``SHARE`` of the ends x is below ``LEFT`` max(x)."""
    left = sum(end < LEFT * max(ends) for end in ends)
    return left >= SHARE * len(ends)


def scale(axes: Axes, spans: Sequence[tuple[float, float]], logarithmic: bool) -> None:
    """Set the scale, the limits and the ticks of the x axis, for curves that span these x."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    above = [start for start, _ in spans if start > 0]
    if not (logarithmic and above):
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        return
    axes.set_xscale("log", nonpositive="mask")
    first = min(above)
    axes.set_xlim(left=first)
    few = max(end for _, end in spans) > 1000 * first  # labels at each 1 and 3 would run into each other
    axes.xaxis.set_major_locator(LogLocator(subs=(1,) if few else (1, 3)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
