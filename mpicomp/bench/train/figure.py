"""The figure of a model's test score against seconds of training."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from mpicomp.bench.train.report import place
from mpicomp.experiment.canvas import COLOURS, DASHES, blank_figure, plain_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 6  # curves of a panel


def draw_training(rows: Sequence[dict[str, Any]]) -> Figure:
    """A panel for each link and model, with torch's plain DDP and the fastest others, labelled at their ends.

    A contestant has the same colour in all panels: of the six with the least seconds in the sum.
    """
    panels: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        panels.setdefault((row["rate"], row["model"], row["d"], row["ranks"]), []).append(row)
    shown = _shown(rows)
    figure, all_axes = blank_figure(1, len(panels), sharey=False)
    for axes, ((rate, model, d, ranks), group) in zip(all_axes, panels.items(), strict=True):
        for row in group:
            if row["label"] in shown and row["curve"]:
                i = shown.index(row["label"])
                seconds, _, scores = zip(*row["curve"], strict=True)
                axes.plot(seconds, scores, color=COLOURS[i], linestyle=DASHES[i % len(DASHES)], linewidth=1.4)
                axes.annotate(
                    plain_label(row["label"]),
                    (seconds[-1], scores[-1]),
                    xytext=(4, 0),
                    textcoords="offset points",
                    fontsize=8,
                    color=COLOURS[i],
                    rotation=35,
                    rotation_mode="anchor",
                )
        axes.set_xscale("log")
        axes.set_xlabel("seconds of training")
        axes.set_ylabel("test accuracy" if model == "cnn" else "test loss, nats a character")
        title = f"{place(rate, ranks)}; {model}, d = {d}"
        axes.set_title(title, loc="left", fontsize=9.5, color="#444444", pad=60)
        axes.grid(True, which="major", color="#e2e2e2", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("Time to accuracy", fontsize=15, fontweight="bold")
    return figure


def _shown(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The labels of the curves: plain DDP first, then by their seconds."""
    total: dict[str, float] = {}
    for row in rows:
        if not row["reached"]:
            total[row["label"]] = inf
            continue
        total[row["label"]] = total.get(row["label"], 0.0) + row["seconds"]
    return sorted(total, key=lambda label: (label != "DDP", total[label]))[:MOST]
