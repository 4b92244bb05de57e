"""The results of ``bench.train``: tables, JSON, and the figure of time to accuracy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from mpicomp.base.errors import RecordError
from mpicomp.base.files import os_errors_as, write_text
from mpicomp.base.units import human_bytes
from mpicomp.lab.bench.figures import place
from mpicomp.lab.experiment.tables import markdown_table

OVER = ("× DDP", "× best of torch")  # the columns of ``_over``


def publish(rows: Sequence[dict[str, Any]], folder: Path, said: str = "") -> None:
    """Write train.jsonl and train.md into ``folder``, and train.png if trainings to a target have a score.

    Without a score there is no figure, not even an old one.

    said  a text to add below the tables
    """
    write_text(folder / "train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    write_text(folder / "train.md", tables(rows) + said)
    if trained := [row for row in rows if row.get("curve")]:
        from mpicomp.lab.bench.figures import draw_training
        from mpicomp.lab.experiment.canvas import save

        save(draw_training(trained), folder / "train.png")
    else:
        with os_errors_as(RecordError, f"cannot remove {folder}/train.png"):
            (folder / "train.png").unlink(missing_ok=True)


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: a table for each place and model."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        where = row["rate"], row["model"], row["d"], row["ranks"], row["optimiser"]
        groups.setdefault(where, []).append(row)
    said = []
    for (rate, model, d, ranks, optimiser), group in groups.items():
        adamw = ", AdamW" if optimiser == "adamw" else ""
        said.append(f"**{place(rate, ranks)}; {model}, d = {d}{adamw}**")
        said.append(_steps_to_target(group) if "all_steps" in group[0] else _steps(group))
    return "\n\n".join(said) + "\n"


def _references(group: Sequence[dict[str, Any]], every: int | None = None) -> list[float | None]:
    """Seconds of plain DDP, and the least of torch's, of those with an exchange every ``every`` steps."""
    torch = [row for row in group if row["side"] == "torch" and row.get("reached", True)]
    ddp = [row["seconds"] for row in torch if row["label"] == "DDP"]
    peers = [row["seconds"] for row in torch if every in (None, row["every"])]
    return [min(ddp, default=None), min(peers, default=None)]


def _over(row: dict[str, Any], references: Sequence[float | None]) -> list[str]:
    """How many times less time than each reference."""
    return [f"{other / row['seconds']:.2f}" if other else "" for other in references]


def _digits(value: float) -> str:
    """Two digits, and no exponent."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _steps(group: Sequence[dict[str, Any]]) -> str:
    head = ["", "ms a step", "quartiles", *OVER, "up", "down", "link", "link's ms", "phases, ms"]
    lines = []
    for row in group:
        low, middle, high = (f"{1e3 * row[name]:.3g}" for name in ("low", "seconds", "high"))
        ours, linked = row["side"] == "ours", row["rate"] is not None
        lines.append(
            [
                f"{row['label']}, {row['side']}",
                middle,
                f"{low} to {high}",
                *_over(row, _references(group, row["every"])),
                human_bytes(row["up_bytes"]) if ours else "",
                human_bytes(row["down_bytes"]) if ours else "",
                human_bytes(row["link_bytes"]) if linked else "",
                f"{8e3 * row['link_bytes'] / row['rate']:.3g}" if linked else "",
                ", ".join(f"{name} {_digits(1e3 * value)}" for name, value in row["phases"].items()),
            ]
        )
    return markdown_table(head, lines)


def _steps_to_target(group: Sequence[dict[str, Any]]) -> str:
    seeds, ranks = len(group[0]["seeds"]), group[0]["ranks"]
    said = (
        f"Target: {group[0]['target']:g}; median and range of {seeds} seeds. The steps are counted with "
        f"{ranks} ranks on one host; seconds and the link's bytes are the steps times what a step takes and "
        "sends here."
    )
    head = ["", "rates", "steps", "range", "ms a step", "seconds", "range", *OVER, "link", "messages"]
    references, lines = _references(group), []
    for row in group:
        missed = "" if row["reached"] else "> "
        known = [value for value in row["messages"] if value is not None]
        lines.append(
            [
                f"{row['label']}, {row['side']}",
                f"{row['lr']:g}" + (f", outer {row['outer']:g}" if row["every"] > 1 else ""),
                f"{missed}{row['steps']:g}",
                _range(row, 1.0),
                f"{1e3 * row['per_step']:.3g}",
                f"{missed}{row['seconds']:.3g}",
                _range(row, row["per_step"]),
                *(_over(row, references) if row["reached"] else ["", ""]),
                f"{missed}{human_bytes(row['steps'] * row['link_per_step'])}" if row["rate"] else "",
                f"{missed}{human_bytes(median(known))}" if known else "",
            ]
        )
    return f"{said}\n\n" + markdown_table(head, lines)


def _range(row: dict[str, Any], unit: float) -> str:
    """The least and the most steps of a seed, times ``unit``; "> " before a number that was not enough."""
    reached = [f"{steps * unit:.4g}" for steps in sorted(s for s in row["all_steps"] if s is not None)]
    diverged = ["diverged"] * sum(row["diverged"])
    missed = [f"> {row['most'] * unit:.4g}"] * (len(row["all_steps"]) - len(reached) - len(diverged))
    found = [*reached, *missed, *diverged]
    return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def checked(row: dict[str, Any], whole: dict[str, Any]) -> str:
    """Compare in a sentence a timed training, ``whole``, with steps times seconds a step of ``row``."""
    steps, per_step = row["all_steps"][0], row["per_step"]
    product = "" if steps is None else f"; {steps} × {1e3 * per_step:.3g} ms are {steps * per_step:.3g} s"
    where = f"{place(row['rate'], row['ranks'])}; {row['model']}, d = {row['d']}"
    return (
        f"Check, {where}; {row['label']}, seed {whole['seed']}: a whole training took "
        f"{whole['seconds']:.3g} s and {whole['steps']} steps{product}."
    )
