"""The results of ``bench.link``: tables, JSON, and the figure of time to accuracy against link rate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import inf, isfinite
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from mpicomp.base.errors import RecordError
from mpicomp.base.files import os_errors_as, write_text
from mpicomp.base.units import human_bytes, human_rate, human_time
from mpicomp.lab.bench.contenders import BY_ALLREDUCE, Say
from mpicomp.lab.bench.cost_model import model_of
from mpicomp.lab.bench.figures import Times, draw_times
from mpicomp.lab.bench.link import between_hosts, time_on_links
from mpicomp.lab.bench.timings import BreakEven, Timing, break_evens, fastest
from mpicomp.lab.experiment.canvas import save
from mpicomp.lab.experiment.suite import Suite
from mpicomp.lab.experiment.tables import markdown_table


@dataclass(frozen=True)
class Results:
    """The timings, by rate and then in the suite's order, and the break-even rates that follow."""

    suite: Suite
    timings: list[Timing]
    break_evens: list[BreakEven]

    @property
    def reached(self) -> bool:
        """Whether a method of the suite reaches the target; without one there is no figure."""
        return bool(_curves(self))

    def to_json(self) -> Iterator[dict[str, Any]]:
        """An object for each timing and each break-even; infinity is null."""
        for kind, rows in (("timing", self.timings), ("break-even", self.break_evens)):
            for row in rows:
                values = asdict(row).items()
                finite = {k: None if isinstance(v, float) and not isfinite(v) else v for k, v in values}
                yield {"kind": kind, **finite}


def publish(
    suite: Suite, rates: list[float], latency: float, folder: Path, say: Say, server: str = "sharded"
) -> Results:
    """Time ``suite`` at ``rates`` (bits a second); write link.jsonl, link.md and link.png into ``folder``.

    There is no figure, not even an old one, where no method of the suite meets the target.
    """
    timings = list(time_on_links(suite, rates, latency, say, server))
    results = Results(suite, timings, break_evens(timings))
    lines = "".join(json.dumps(row) + "\n" for row in results.to_json())
    write_text(folder / "link.jsonl", lines)
    write_text(folder / "link.md", tables(results))
    if curves := _curves(results):
        first = timings[0]
        subtitle = f"d = {first.d}, {first.workers} hosts"
        if first.latency:
            subtitle += f", {human_time(first.latency)} one way"
        target = rf"seconds to $\|\nabla f\|^2 \leq$ {suite.target:g}"
        save(draw_times(suite.title, subtitle, target, curves), folder / "link.png")
    else:
        say("no method of the suite met the target: there is no figure")
        with os_errors_as(RecordError, f"cannot remove {folder}/link.png"):
            (folder / "link.png").unlink(missing_ok=True)
    return results


def tables(results: Results) -> str:
    """Markdown: a table of times for each rate, then a table of break-even rates."""
    suite, first = results.suite, results.timings[0]
    target = f"|∇f|² ≤ {suite.target:g}"
    said = [
        f"### {suite.title}",
        f"d = {first.d}, {first.workers} hosts, one worker each; seconds to {target}. Bytes are sums over "
        "all workers. ×: how many times less time than GD, AGD, and the same method uncompressed, each as it "
        "is averaged faster, MPI_Allreduce included. Predicted: seconds of the model; in brackets, measured "
        "over predicted.",
    ]
    for rate in sorted({t.rate for t in results.timings}):
        at = [t for t in results.timings if t.rate == rate]
        added = f", {human_time(first.latency)} one way" if first.latency else ""
        alpha = human_time(median(t.alpha for t in at))
        said += [f"**{human_rate(rate)}{added}** (an empty message takes {alpha})", _times(at)]
    if results.break_evens:
        said += ["**Link speed below which compressing wins**", _break_evens(results.break_evens)]
    errors = sorted(abs(t.seconds / t.predicted - 1) for t in results.timings)
    said.append(f"The model is off by {median(errors):.0%} (median), {errors[-1]:.0%} at most.")
    return "\n\n".join(said) + "\n"


def _times(at: list[Timing]) -> str:
    head = ["method", "rounds", "up", "down", "seconds", "× GD", "× AGD", "× uncompressed", "predicted"]
    rows = []
    for t in at:
        reached = t.status == "target"
        others = [fastest(at, name) if name else None for name in ("gd", "agd", t.plain)]
        over = [f"{other.seconds / t.seconds:.2g}" if reached and other else "" for other in others]
        if t.plain is not None and all(other.label != t.plain for other in at):
            over[-1] = "diverges"
        rows.append(
            [
                t.label,
                f"{t.rounds}" if reached else f"> {t.rounds}",
                human_bytes(t.up_bytes),
                human_bytes(t.down_bytes),
                f"{t.seconds:.3g}" if reached else f"> {t.seconds:.3g}",
                *over,
                f"{t.predicted:.3g} ({t.seconds / t.predicted:.2f})",
            ]
        )
    return markdown_table(head, rows)


def _break_evens(found: list[BreakEven]) -> str:
    rows = [[b.label, b.against, _measured(b), _rate(b.predicted)] for b in found]
    return markdown_table(["method", "against", "measured", "predicted"], rows)


def _measured(b: BreakEven) -> str:
    if b.low == b.high:
        return human_rate(b.low)
    return f"below {human_rate(b.high)}" if b.low == 0 else f"above {human_rate(b.low)}"


def _rate(rate: float) -> str:
    return {inf: "always", 0.0: "never"}.get(rate) or human_rate(rate)


def _curves(results: Results) -> list[Times]:
    """The suite's methods: measured times as points, modelled times as lines between them."""
    labels = [entry.label for entry in results.suite.entries]
    labels += [label + BY_ALLREDUCE for label in labels]
    curves = []
    for label in labels:
        own = [t for t in results.timings if t.label == label and t.status == "target"]
        if not own:
            continue
        first, rates, alpha = own[0], [t.rate for t in own], median(t.alpha for t in own)
        grid, round_model = np.geomspace(min(rates), max(rates), 100).tolist(), model_of(first.server)
        links = [between_hosts(rate, alpha) for rate in grid]
        model = [
            first.rounds * round_model.time(first.costs, link, first.workers, first.sharing).total
            for link in links
        ]
        curves.append(Times(label, rates, [t.seconds for t in own], grid, model))
    return curves
