"""The table of a comparison, in Markdown and for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import quantiles
from typing import TYPE_CHECKING

from mpicomp.base.units import human_bytes
from mpicomp.lab.experiment.fairness import caveats
from mpicomp.lab.experiment.lines import Line
from mpicomp.lab.experiment.suite import Suite
from mpicomp.methods.parameters import is_auto

if TYPE_CHECKING:
    from rich.table import Table


HEADER = ("method", "step size", "|∇f|²", "rounds", "up/worker", "paper's", "up + down", "seconds")


def header(suite: Suite) -> list[str]:
    """The names of the columns.

    Epochs, the total error and f have a column if the suite's figure shows them; f also has one if the suite
    has no target.
    """
    more = {
        "epochs": "epochs" in suite.x,
        "total error": suite.y == "error",
        "f": suite.y == "f" or suite.target is None,
    }
    return [*HEADER, *(name for name, shown in more.items() if shown)]


def cells(line: Line, suite: Suite) -> list[str]:
    """``line`` as texts, one for each column of ``header``; quartiles follow where the seeds differ."""
    gamma = (line.step if is_auto(line.step) else "-") if line.gamma is None else f"{line.gamma:.3g}"
    if _multiple(line):
        gamma += f" ({line.step.removeprefix('theory*').replace('theory', '1')}×)"
    left = [line.label, gamma + ("†" if line.at_edge else "")]
    columns = header(suite)
    if line.grad_norm_sq is None:
        return [*left, "diverged" if line.diverged else "not run", *[""] * (len(columns) - 3)]
    target = suite.target is not None
    more = "> " if target and line.reached < line.finished + line.diverged else ""

    def cost(measure: str, show: Callable[[float], str], value: float | None) -> str:
        spread = _quartiles(line, measure, show) if target and not more else ""
        return more + show(value or 0) + spread

    gone_wrong = [f"{line.diverged} of {line.seeds} diverged"] * bool(line.diverged)
    gone_wrong += [f"{line.rose} of {line.seeds} rose"] * bool(line.rose)
    ends = {
        "|∇f|²": _ended(line, "grad_norm_sq", "{:.1e}", target)
        + (f" ({', '.join(gone_wrong)})" if gone_wrong else ""),
        "rounds": cost("rounds", "{:g}".format, line.rounds)
        + (f" ({line.reached} of {line.finished + line.diverged})" if more and line.reached else ""),
        "up/worker": cost("", human_bytes, line.up_bytes_per_worker),
        "paper's": cost("", human_bytes, line.paper_bytes_up_per_worker),
        "up + down": cost("total_bytes", human_bytes, line.total_bytes),
        "seconds": cost("", "{:.2f}".format, line.seconds),
        "epochs": cost("", "{:.3g}".format, line.epochs),
        "total error": "-" if line.error is None else _ended(line, "error", "{:.3g}", target),
        "f": _ended(line, "f", "{:.4g}", target),
    }
    return [*left, *(ends[name] for name in columns[2:])]


def _ended(line: Line, measure: str, form: str, target: bool) -> str:
    """The median over the seeds of the final ``measure``, with quartiles if there is no target."""
    spread = "" if target else _quartiles(line, measure, form.format)
    return form.format(getattr(line, measure)) + spread


def _quartiles(line: Line, measure: str, show: Callable[[float], str]) -> str:
    """`` [first .. third quartile]`` of ``measure`` over the seeds; empty if they do not differ."""
    values = [float(getattr(end, measure)) for end in line.ends] if measure else []
    if len(set(values)) < 2:
        return ""
    low, _, high = quantiles(values, n=4, method="inclusive")
    first, third = show(low), show(high)
    return f" [{first} .. {third}]" if first != third else ""


def _multiple(line: Line) -> bool:
    """Whether the step is shown as a multiple of the theory's step."""
    return line.gamma is not None and line.step.startswith("theory")


def notes(lines: Sequence[Line], suite: Suite) -> list[str]:
    """The sentences below the table: the meaning of its numbers, then the caveats."""
    seeds = len(suite.seeds)
    said = [f"Medians over {seeds} seeds; in brackets the quartiles." if seeds > 1 else "One seed."]
    if suite.target is not None:
        target = f"|∇f|² ≤ {suite.target:g}"
        said.append(
            f"Costs are what reaching {target} took. Where a seed missed it, > stands before what was spent, "
            "and (3 of 5) says how many seeds reached it."
        )
        if hold := suite.limits.hold:
            span = "as many rounds" if hold == 1 else f"{hold:g} times as many rounds"
            said.append(f"It counts where it held for {span} as it took to get there.")
    else:
        said.append("f and |∇f|² are means over the last tenth of the rounds.")
    if any(map(_multiple, lines)):
        said.append("(8×) is 8 times the theory's step.")
    said.append("Bytes are bytes sent; up + down is the sum over all workers.")
    said.append("The paper's count is for the uplink of a worker: 32 bits a float, nothing for indices.")
    if once := {human_bytes(b): None for line in lines if (b := line.set_up_bytes_per_worker)}:
        said.append(f"Up includes what a worker of some methods sends once, to set up: {', '.join(once)}.")
    return [*said, *caveats(lines, suite)]


def markdown(lines: list[Line], suite: Suite) -> str:
    """The table in Markdown, under the suite's title, if it is not empty."""
    title = _in_one_line(suite.title)
    body = markdown_table(header(suite), [cells(line, suite) for line in lines])
    return f"### {title}\n\n" * bool(title) + f"{body}\n\n{_in_one_line(' '.join(notes(lines, suite)))}\n"


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; all columns but the first are flush right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    shown = [[_in_one_line(cell).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in shown)


def _in_one_line(text: str) -> str:
    """``text`` without line breaks, as a label may have them: they would end a row of a table."""
    return " ".join(text.split())


def terminal(lines: list[Line], suite: Suite) -> Table:
    """The table for a terminal."""
    from rich.markup import escape
    from rich.table import Table

    drawn = Table(
        title=escape(suite.title), caption=escape(" ".join(notes(lines, suite))), caption_justify="left"
    )
    for name in header(suite):
        drawn.add_column(name, justify="left" if name == "method" else "right")
    for line in lines:
        drawn.add_row(*map(escape, cells(line, suite)))
    return drawn
