"""The figure of a model's test score against seconds of training."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from mpicomp.base.units import human_rate
from mpicomp.lab.experiment.canvas import blank_figure, curve_style, finish, plain_label
from mpicomp.lab.experiment.endlabels import number_ends
from mpicomp.lab.experiment.figure import crushed, scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 6  # curves of a panel
TITLE: dict[str, Any] = {"loc": "left", "fontsize": 9.5, "color": "#444444"}


def draw_training(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw plain DDP and the fastest other contestants: a row of panels a model, a panel for each place.

    Curves are of the first seed, and one of ``rows`` at least has one; it is empty where that seed diverged
    before it had a score.  A contestant has the same colour in all panels: of the six with the least seconds
    in the sum.
    """
    seen = [row for row in rows if row["curve"]]
    shown = _shown(seen)
    models = list(dict.fromkeys(map(_model, seen)))
    places = list(dict.fromkeys(map(_place, seen)))
    figure, panels = blank_figure(len(models), len(places), sharey=False)
    wanted = [(model, where) for model in models for where in places]
    for axes, panel in zip(panels, wanted, strict=True):
        group = [row for row in seen if row["label"] in shown and (_model(row), _place(row)) == panel]
        axes.set_title(", d = ".join(map(str, panel[0])) + f"; {place(*panel[1])}", **TITLE)
        if group:
            _draw(axes, group, shown)
    finish(figure, panels, "Test score against seconds of training")
    number_ends(figure, panels, [_numbered(shown, label) for label in shown], 8.5)
    return figure


def _model(row: dict[str, Any]) -> tuple[str, int]:
    return row["model"], row["d"]


def _place(row: dict[str, Any]) -> tuple[float | None, int]:
    return row["rate"], row["ranks"]


def _draw(axes: Axes, group: Sequence[dict[str, Any]], shown: Sequence[str]) -> None:
    for row in sorted(group, key=lambda row: shown.index(row["label"])):
        seconds, _, scores = zip(*row["curve"], strict=True)
        style = curve_style(shown.index(row["label"])) | {"marker": ""}
        axes.plot(seconds, scores, linewidth=1.6, label=_numbered(shown, row["label"]), **style)
    spans = [(row["curve"][0][0], row["curve"][-1][0]) for row in group]
    scale(axes, spans, crushed([end for _, end in spans]))
    axes.axhline(group[0]["target"], color="#999999", linewidth=0.8, linestyle="--")
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("test accuracy" if group[0]["model"] == "cnn" else "test loss, nats a character")
    axes.grid(True, which="major", color="#e2e2e2", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


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
