"""What a comparison comes to, one line a method; and where the seconds of a run went."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from mpicomp.clock import PHASES
from mpicomp.config import parse_method
from mpicomp.results import Comparison, Outcome
from mpicomp.suite import Entry, Suite

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Line:
    """One method: medians over its seeds, each taken at the end of a run.

    The costs are those of reaching the target if ``reached`` equals ``finished``, else what was spent.
    ``gamma`` is the number, ``step`` what was asked for; both are None if every seed diverged.
    """

    label: str
    step: str
    at_edge: bool  # a tuned step at an end of its range
    seeds: int
    finished: int
    diverged: int
    reached: int
    gamma: float | None = None
    grad_norm_sq: float | None = None
    rounds: float | None = None
    up_bytes_per_worker: float | None = None
    paper_bytes_up_per_worker: float | None = None
    total_bytes: float | None = None
    seconds: float | None = None
    epochs: float | None = None
    error: float | None = None
    f: float | None = None
    set_up_bytes_per_worker: float | None = None


def table(comparison: Comparison) -> list[Line]:
    """A line for each method, in the order of the suite."""
    by_label: dict[str, list[Outcome]] = {}
    for outcome in comparison.outcomes:
        by_label.setdefault(outcome.label, []).append(outcome)
    return [_line(comparison, entry, by_label.get(entry.label, [])) for entry in comparison.suite.entries]


def _line(comparison: Comparison, entry: Entry, outcomes: list[Outcome]) -> Line:
    n = comparison.suite.workers
    tuning = comparison.tunings.get(entry.label)
    step = tuning.best.gamma if tuning else entry.method.step
    status = [o.summary.get("status") for o in outcomes]
    finished = [
        o for o, s in zip(outcomes, status, strict=True) if s not in (None, "diverged", "interrupted")
    ]
    line = Line(
        label=entry.label,
        step=str(step),
        at_edge=tuning is not None and tuning.at_edge,
        seeds=len(comparison.suite.seeds),
        finished=len(finished),
        diverged=status.count("diverged"),
        reached=status.count("target"),
    )
    if not finished:
        return line
    last = [o.rows[-1] for o in finished]
    return replace(
        line,
        gamma=float(parse_method(finished[0].summary["method"]).step),
        grad_norm_sq=median(row.grad_norm_sq for row in last),
        rounds=median(row.round for row in last),
        up_bytes_per_worker=median(row.up_bytes for row in last) / n,
        paper_bytes_up_per_worker=median(row.paper_bits_up for row in last) / 8 / n,
        total_bytes=median(row.up_bytes + row.down_bytes for row in last),
        seconds=median(row.seconds for row in last),
        epochs=median(row.epochs for row in last),
        error=median(row.error for row in last),
        f=median(row.f for row in last),
        set_up_bytes_per_worker=median(o.summary.get("set_up_bytes", 0) for o in finished) / n,
    )


HEADER = ("method", "step size", "|∇f|²", "rounds", "up/worker", "paper's", "up + down", "seconds")


def header(suite: Suite) -> list[str]:
    """The columns; passes over the samples, the total error and f where the suite's figure shows them."""
    more = {"epochs": "epochs" in suite.x, "total error": suite.y == "error", "f": suite.y == "f"}
    return [*HEADER, *(name for name, shown in more.items() if shown)]


def cells(line: Line, suite: Suite) -> list[str]:
    """``line`` as text, below ``header``."""
    gamma = "-" if line.gamma is None else f"{line.gamma:.3g}"
    if _multiple(line):
        gamma += f" ({line.step.removeprefix('theory*').replace('theory', '1')}×)"
    left = [line.label, gamma + ("†" if line.at_edge else "")]
    if line.grad_norm_sq is None:
        return [*left, "diverged" if line.diverged else "not run", *[""] * (len(header(suite)) - 3)]
    more = "" if suite.target_grad_norm_sq is None or line.reached == line.finished else "> "
    costs = (line.up_bytes_per_worker, line.paper_bytes_up_per_worker, line.total_bytes)
    return [
        *left,
        f"{line.grad_norm_sq:.1e}"
        + (f" ({line.diverged} of {line.seeds} diverged)" if line.diverged else ""),
        f"{more}{line.rounds:g}",
        *(more + human_bytes(cost) for cost in costs if cost is not None),
        f"{more}{line.seconds:.2f}",
        *[f"{more}{line.epochs:.3g}"] * ("epochs" in suite.x),
        *[f"{line.error:.3g}"] * (suite.y == "error"),
        *[f"{line.f:.4g}"] * (suite.y == "f"),
    ]


def _multiple(line: Line) -> bool:
    """Whether the step is shown as a multiple of the theory's."""
    return line.gamma is not None and line.step.startswith("theory")


def notes(lines: list[Line], suite: Suite) -> list[str]:
    """What a reader of the table has to know, a sentence each."""
    said = [f"Medians over {len(suite.seeds)} seeds." if len(suite.seeds) > 1 else "One seed."]
    if suite.target_grad_norm_sq is not None:
        target = f"|∇f|² ≤ {suite.target_grad_norm_sq:g}"
        said.append(
            f"Costs are those of reaching {target}; > stands before what was spent without reaching it."
        )
    if any(map(_multiple, lines)):
        said.append("(8×) is 8 times the theory's step.")
    said.append("Bytes are those sent, up + down by all workers together.")
    said.append("The paper's count is of the uplink of a worker, at 32 bits a float and nothing for indices.")
    if once := {human_bytes(b): None for line in lines if (b := line.set_up_bytes_per_worker)}:
        said.append(f"Up includes what a worker of some methods sends once, to set up: {', '.join(once)}.")
    if any(line.at_edge for line in lines):
        said.append("† The best step size tried is at the edge of its range; one beyond may be better.")
    return said


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

    drawn = Table(title=escape(suite.title), caption=" ".join(notes(lines, suite)), caption_justify="left")
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
        "paper's count": f"{human_bytes(summary['paper_bits_up'] / 8)} up, by all",
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
