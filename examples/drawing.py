"""The figure of an example: one quantity against steps, bytes and seconds."""

from math import ceil

import matplotlib.pyplot as plt

AXES = {"steps": "steps", "bytes": "bytes that a rank sends and gets", "seconds": "seconds"}


def draw(path, histories, quantity):
    """``histories`` has a list of rows by label; a row has ``quantity``, and what is in AXES."""
    longest = max(map(len, histories))
    columns = min(3, len(histories), max(1, 110 // (longest + 8)))  # of the legend, 10 inches wide
    height = 3.1 + 0.2 * ceil(len(histories) / columns)
    figure, axes = plt.subplots(1, len(AXES), figsize=(10, height), sharey=True, layout="constrained")
    for ax, (name, label) in zip(axes, AXES.items(), strict=True):
        for which, rows in histories.items():
            ax.plot([row[name] for row in rows], [row[quantity] for row in rows], label=which)
        ax.set_xlabel(label)
        ax.grid(alpha=0.3)
        if name == "bytes":
            ax.set_xscale("log")
    axes[0].set_ylabel(quantity)
    lines, labels = axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper center", ncols=columns, frameon=False)
    figure.savefig(path, dpi=150)
