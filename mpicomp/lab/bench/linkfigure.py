"""The figure of time to accuracy against link rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpicomp.base.units import human_rate
from mpicomp.lab.experiment.canvas import COLOURS, MARKERS, blank_figure, finish, plain_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Times:
    """Seconds of one method on links of several rates, measured and modelled; rates in bits a second."""

    label: str
    rates: Sequence[float]
    seconds: Sequence[float]
    model_rates: Sequence[float]
    model_seconds: Sequence[float]


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
    axes.set_title(f"{subtitle}; points measured, lines modelled", loc="left", fontsize=9.5, color="#444444")
    axes.grid(True, which="major", color="#e2e2e2", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return finish(figure, [axes], title)
