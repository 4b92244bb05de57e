"""The figures of ``bench link``, ``bench traffic`` and ``bench train``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from mpicomp.base.units import human_bytes, human_rate
from mpicomp.lab.experiment.canvas import (
    COLOURS,
    DASHES,
    MARKERS,
    blank_figure,
    curve_style,
    legend_entries,
    plain_axes,
    plain_label,
    without_tex,
)
from mpicomp.lab.experiment.figure import crushed, scale
from mpicomp.lab.experiment.layout import number_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 6  # curves of a panel
TITLE: dict[str, Any] = {"loc": "left", "fontsize": 9.5, "color": "#444444"}


@dataclass(frozen=True)
class Times:
    """Seconds of one method on links of several rates, measured and modelled; rates in bits a second."""

    label: str
    rates: Sequence[float]
    seconds: Sequence[float]
    model_rates: Sequence[float]
    model_seconds: Sequence[float]


@without_tex()
def draw_times(title: str, subtitle: str, ylabel: str, curves: Sequence[Times]) -> Figure:
    """A figure of time against link rate: measured seconds as points, modelled seconds as lines."""
    from matplotlib.ticker import LogLocator, NullFormatter

    figure, (axes,) = blank_figure(1, 1, sharey=False)
    for i, curve in enumerate(curves):
        style: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "label": plain_label(curve.label)}
        axes.plot(curve.model_rates, curve.model_seconds, linewidth=1.2, alpha=0.6, color=style["color"])
        axes.plot(curve.rates, curve.seconds, linestyle="none", marker=MARKERS[i % len(MARKERS)], **style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_major_formatter(lambda rate, _: human_rate(rate))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("link, each way")
    axes.set_ylabel(ylabel)
    axes.set_title(f"{subtitle}; points measured, lines modelled", **TITLE)
    plain_axes(axes)
    return _finish(figure, [axes], title)


@without_tex()
def draw_traffic(rows: Sequence[dict[str, Any]]) -> Figure:
    """Bytes through the busiest rank against the number of workers, labelled at the ends of the curves."""
    figure, (axes,) = blank_figure(1, 1, sharey=False)
    figure.set_size_inches(6.4, 3.8)
    for colour, label in zip(COLOURS[2:], dict.fromkeys(row["method"] for row in rows), strict=False):
        for server, dashes in (("shared", DASHES[1]), ("sharded", DASHES[0])):
            found = [row for row in rows if (row["method"], row["server"]) == (label, server)]
            n, crossed = [row["workers"] for row in found], [row["bytes"] for row in found]
            axes.loglog(n, crossed, linestyle=dashes, marker="o", markersize=4, color=colour)
            served = "root" if server == "shared" else "every rank"
            axes.annotate(
                f"{label}: {served}",
                (n[-1], crossed[-1]),
                xytext=(6, -3),
                textcoords="offset points",
                fontsize=8,
                color=colour,
            )
    ticks = sorted({row["workers"] for row in rows})
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.minorticks_off()
    axes.set_xlim(ticks[0] / 1.2, ticks[-1] * 8)
    axes.set_xlabel("workers, one a rank")
    axes.set_ylabel("bytes a round through the busiest rank")
    axes.set_title(
        f"d = {rows[0]['d']}; served by the root, or by every rank its share", loc="left", fontsize=9.5
    )
    plain_axes(axes)
    return figure


@without_tex()
def draw_training(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw plain DDP and the fastest other contestants: a row of panels a model, a panel for each place.

    If there are links, the x axis of a row's last panel has bytes through the busiest link, not seconds.

    Curves are of the first seed, and one of ``rows`` at least has one; it is empty where that seed diverged
    before it had a score.  A contestant has the same colour in all panels: of the six with the least seconds
    in the sum.
    """
    seen = [row for row in rows if row["curve"]]
    shown = _shown(seen)
    models = list(dict.fromkeys(map(_model, seen)))
    places = list(dict.fromkeys(map(_place, seen)))
    columns = [(of, _seconds) for of in places] + [(of, _bytes) for of in places if of[0] is not None][:1]
    figure, panels = blank_figure(len(models), len(columns), sharey=False)
    wanted = [(model, *column) for model in models for column in columns]
    for axes, (model, of, costs) in zip(panels, wanted, strict=True):
        group = [row for row in seen if row["label"] in shown and (_model(row), _place(row)) == (model, of)]
        axes.set_title(", d = ".join(map(str, model)) + f"; {place(*of)}", **TITLE)
        if group:
            _draw(axes, group, shown, costs)
    _finish(figure, panels, "Test score against the costs of training")
    number_ends(figure, panels, [_numbered(shown, label) for label in shown], 8.5)
    return figure


def _finish(figure: Figure, panels: Sequence[Axes], title: str) -> Figure:
    """Add the title, and one legend for all panels; returns the figure."""
    figure.suptitle(title, fontsize=15, fontweight="bold")
    shown = legend_entries(panels)
    inches = 0.75 + 0.08 * max(map(len, shown))  # width of the longest legend entry, its line sample included
    columns = min(len(shown), max(1, int(figure.get_size_inches()[0] / inches)))
    figure.legend(
        list(shown.values()),
        list(shown),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=10,
    )
    return figure


def _seconds(row: dict[str, Any]) -> list[float]:
    return [seconds for seconds, _, _ in row["curve"]]


def _bytes(row: dict[str, Any]) -> list[float]:
    return [step * row["link_per_step"] for _, step, _ in row["curve"]]


def _model(row: dict[str, Any]) -> tuple[str, int]:
    return row["model"], row["d"]


def _place(row: dict[str, Any]) -> tuple[float | None, int]:
    return row["rate"], row["ranks"]


def _draw(
    axes: Axes, group: Sequence[dict[str, Any]], shown: Sequence[str], costs: Callable[[Any], list[float]]
) -> None:
    for row in sorted(group, key=lambda row: shown.index(row["label"])):
        scores = [score for _, _, score in row["curve"]]
        style = curve_style(shown.index(row["label"])) | {"marker": ""}
        axes.plot(costs(row), scores, linewidth=1.6, label=_numbered(shown, row["label"]), **style)
    spans = [(costs(row)[0], costs(row)[-1]) for row in group]
    scale(axes, spans, crushed([end for _, end in spans]))
    axes.set_xlabel("seconds of training" if costs is _seconds else "bytes through the busiest link")
    if costs is _bytes:
        axes.xaxis.set_major_formatter(lambda nbytes, _: human_bytes(nbytes))
    axes.axhline(group[0]["target"], color="#999999", linewidth=0.8, linestyle="--")
    axes.set_ylabel("test accuracy" if group[0]["model"] == "cnn" else "test loss, nats a character")
    plain_axes(axes)


def _numbered(shown: Sequence[str], label: str) -> str:
    """The label in the legend, with the number at its curves' ends."""
    return f"{shown.index(label) + 1}  {plain_label(label)}"


def _shown(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The labels of the curves: plain DDP first, then by their seconds."""
    total: dict[str, float] = {}
    for row in rows:
        seconds = row["seconds"] if row["reached"] else inf
        total[row["label"]] = total.get(row["label"], 0.0) + seconds
    return sorted(total, key=lambda label: (label != "DDP", total[label]))[:MOST]


def place(rate: float | None, ranks: int) -> str:
    """The ranks and their links in words: ``rate`` is in bits a second, or None for one host."""
    return f"{ranks} ranks on one host" if rate is None else f"{ranks} hosts, {human_rate(rate)}"
