"""The tables of comparisons and runs, as text; and where the seconds of a run went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from mpicomp.base.clock import PHASES
from mpicomp.experiment.fairness import caveats
from mpicomp.experiment.lines import Line
from mpicomp.experiment.suite import Suite

if TYPE_CHECKING:
    from rich.table import Table


HEADER = ("method", "step size", "|∇f|²", "rounds", "up/worker", "paper's", "up + down", "seconds")


def header(suite: Suite) -> list[str]:
    """The columns.

    Passes over the samples, the total error and f are there where the suite's figure shows them; f is there
    too where the suite has no target.
    """
    more = {
        "epochs": "epochs" in suite.x,
        "total error": suite.y == "error",
        "f": suite.y == "f" or suite.target_grad_norm_sq is None,
    }
    return [*HEADER, *(name for name, shown in more.items() if shown)]


def cells(line: Line, suite: Suite) -> list[str]:
    """``line`` as text, below ``header``; what the seeds differ in has its quartiles behind it."""
    gamma = "-" if line.gamma is None else f"{line.gamma:.3g}"
    if _multiple(line):
        gamma += f" ({line.step.removeprefix('theory*').replace('theory', '1')}×)"
    left = [line.label, gamma + ("†" if line.at_edge else "")]
    columns = header(suite)
    if line.grad_norm_sq is None:
        return [*left, "diverged" if line.diverged else "not run", *[""] * (len(columns) - 3)]
    target = suite.target_grad_norm_sq is not None
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
        "total error": _ended(line, "error", "{:.3g}", target),
        "f": _ended(line, "f", "{:.4g}", target),
    }
    return [*left, *(ends[name] for name in columns[2:])]


def _ended(line: Line, measure: str, form: str, target: bool) -> str:
    """The median over the seeds of what was seen at the end."""
    spread = "" if target else _quartiles(line, measure, form.format)
    return form.format(getattr(line, measure)) + spread


def _quartiles(line: Line, measure: str, show: Callable[[float], str]) -> str:
    """`` [first .. third quartile]`` over the seeds, if they differ."""
    values = [float(getattr(end, measure)) for end in line.ends] if measure else []
    if len(set(values)) < 2:
        return ""
    low, _, high = quantiles(values, n=4, method="inclusive")
    first, third = show(low), show(high)
    return f" [{first} .. {third}]" if first != third else ""


def _multiple(line: Line) -> bool:
    """Whether the step is shown as a multiple of the theory's."""
    return line.gamma is not None and line.step.startswith("theory")


def notes(lines: Sequence[Line], suite: Suite) -> list[str]:
    """What a reader of the table has to know, a sentence each."""
    seeds = len(suite.seeds)
    said = [f"Medians over {seeds} seeds; in brackets the quartiles." if seeds > 1 else "One seed."]
    if suite.target_grad_norm_sq is not None:
        target = f"|∇f|² ≤ {suite.target_grad_norm_sq:g}"
        said.append(
            f"Costs are those of reaching {target}; > stands before what was spent where seeds miss it, and "
            "(3 of 5) says how many reach it."
        )
    else:
        said.append("f and |∇f|² are means over the last tenth of the rounds.")
    if any(map(_multiple, lines)):
        said.append("(8×) is 8 times the theory's step.")
    said.append("Bytes are those sent, up + down by all workers together.")
    said.append("The paper's count is of the uplink of a worker, at 32 bits a float and nothing for indices.")
    if once := {human_bytes(b): None for line in lines if (b := line.set_up_bytes_per_worker)}:
        said.append(f"Up includes what a worker of some methods sends once, to set up: {', '.join(once)}.")
    return [*said, *caveats(lines, suite)]


def markdown(lines: list[Line], suite: Suite) -> str:
    """The table in Markdown, under the suite's title."""
    body = markdown_table(header(suite), [cells(line, suite) for line in lines])
    return f"### {suite.title}\n\n{body}\n\n{' '.join(notes(lines, suite))}\n"


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """Lines of a table; all columns but the first are flush right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


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


def summary_table(summary: dict[str, Any]) -> Table:
    """The outcome of one run, from its summary."""
    from rich.table import Table

    n = summary["n"]

    def both(total: int, word: str) -> str:
        return f"{human_bytes(total)} {word} all, {human_bytes(total / n)} {word} a worker"

    drawn = Table(show_header=False, box=None)
    facts = {
        "method": summary["method"],
        "problem": f"{summary['problem']}, d = {summary['d']}",
        "workers": f"{n} on {summary['ranks']} rank{'s' if summary['ranks'] > 1 else ''}",
        "ended after": f"{summary['rounds']} rounds ({summary['status']}), {summary['seconds']:.3g} s",
        "f, |∇f|²": f"{summary['f']:.8g}, {summary['grad_norm_sq']:.3e}",
        **({"without": missing} if (missing := _without(summary["lost"])) else {}),
        "up": both(summary["up_bytes"], "by"),
        **({"of it set-up": both(summary["set_up_bytes"], "by")} if summary["set_up_bytes"] else {}),
        "paper's count": f"{human_bytes(summary['paper_bits_up'] / 8)} up, by all, "
        f"{human_bytes(summary['paper_bits_down'] / 8)} down, to all",
        "down": both(summary["down_bytes"], "to"),
        "through MPI": _through_mpi(summary),
        **({"on the wire": _on_the_wire(summary)} if summary["wire_bytes_sent"] else {}),
        "iterates": f"sha256 {summary['iterates_sha256'][:16]}..",
    }
    for name, value in facts.items():
        drawn.add_row(name, value)
    return drawn


def _without(lost: list[dict[str, Any]]) -> str:
    """Whose f_i are not in f, from when on, and until when."""
    parts = []
    for one in lost:
        workers = f"worker{'s' if len(one['workers']) > 1 else ''} {', '.join(map(str, one['workers']))}"
        until = f" to {one['back']}" if "back" in one else ""
        if one["workers"]:
            parts.append(f"{workers} after round {one['round']}{until}")
    return "; ".join(parts)


def _through_mpi(summary: dict[str, Any]) -> str:
    """The bytes of messages that really went from one rank to another, and who says so."""
    if summary["ranks"] == 1:
        return "nothing: there is one rank"
    since = _since(summary)
    if summary["verified_by"] is None:
        return f"{human_bytes(sum(summary['mpi_bytes_sent']))} from rank to rank{since}"
    counted, observer = human_bytes(sum(summary["mpi_bytes_counted"])), summary["verified_by"]
    return f"{counted} from rank to rank{since}; the ledger and {observer} agree byte for byte"


def _since(summary: dict[str, Any]) -> str:
    """From when on a resumed run has counted; the rest was counted by the job before."""
    after = summary["resumed_after"]
    return f" since it was resumed after round {after}" if after else ""


def _on_the_wire(summary: dict[str, Any]) -> str:
    """What the hosts' interfaces sent during the run."""
    sent = summary["wire_bytes_sent"]
    return f"{human_bytes(sum(sent.values()))}, all that {len(sent)} hosts sent meanwhile, headers included"


def phases_table(summary: dict[str, Any]) -> Table:
    """Seconds by phase, a line for each rank, of a run's summary."""
    from rich.table import Table

    drawn = Table(title=f"Seconds by phase{_since(summary)}")
    drawn.add_column("rank", justify="right")
    for phase in PHASES:
        drawn.add_column(phase, justify="right")
    for rank, seconds in enumerate(summary["phases"]):
        drawn.add_row(str(rank), *(f"{seconds.get(phase, 0.0):.3f}" for phase in PHASES))
    return drawn


def human_bytes(count: float) -> str:
    """``12.3 KB``; a KB is 1000 bytes."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
