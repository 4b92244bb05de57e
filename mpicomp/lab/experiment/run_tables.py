"""The tables of one run, from its summary: how it ended, and where its seconds went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpicomp.base.clock import PHASES
from mpicomp.base.units import human_bytes

if TYPE_CHECKING:
    from rich.table import Table


def summary_table(summary: dict[str, Any]) -> Table:
    """The outcome of one run, from its summary, for a terminal."""
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
        "f, |∇f|²": _observed(summary),
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


def _observed(summary: dict[str, Any]) -> str:
    """f and its gradient at the end, and the samples that they are of unless they are of all."""
    if summary["f"] is None:
        return "not observed (observe = never)"
    observe = summary.get("observe", "full")
    on = "" if observe == "full" else f"; f on {observe} samples of each worker"
    return f"{summary['f']:.8g}, {summary['grad_norm_sq']:.3e}{on}"


def _without(lost: list[dict[str, Any]]) -> str:
    """The workers whose f_i are missing from f, and the first and last round without them."""
    parts = []
    for one in lost:
        workers = f"worker{'s' if len(one['workers']) > 1 else ''} {', '.join(map(str, one['workers']))}"
        until = f" to {one['back']}" if "back" in one else ""
        if one["workers"]:
            parts.append(f"{workers} after round {one['round']}{until}")
    return "; ".join(parts)


def _through_mpi(summary: dict[str, Any]) -> str:
    """The message bytes that crossed between ranks, and the counter that counted them independently."""
    if summary["ranks"] == 1:
        return "nothing: there is one rank"
    since = _since(summary)
    if summary["verified_by"] is None:
        return f"{human_bytes(sum(summary['mpi_bytes_sent']))} from rank to rank{since}"
    counted, counter = human_bytes(sum(summary["mpi_bytes_counted"])), summary["verified_by"]
    return f"{counted} from rank to rank{since}; the ledger and {counter} agree byte for byte"


def _since(summary: dict[str, Any]) -> str:
    """For a resumed run, the round from which on its counts hold; empty for others."""
    after = summary["resumed_after"]
    return f" since it was resumed after round {after}" if after else ""


def _on_the_wire(summary: dict[str, Any]) -> str:
    """The bytes that the hosts' network interfaces sent during the run."""
    sent = summary["wire_bytes_sent"]
    return f"{human_bytes(sum(sent.values()))}, all that {len(sent)} hosts sent meanwhile, headers included"


def phases_table(summary: dict[str, Any]) -> Table:
    """The seconds of a run by phase, a line for each rank, for a terminal."""
    from rich.table import Table

    drawn = Table(title=f"Seconds by phase{_since(summary)}")
    drawn.add_column("rank", justify="right")
    for phase in PHASES:
        drawn.add_column(phase, justify="right")
    for rank, seconds in enumerate(summary["phases"]):
        drawn.add_row(str(rank), *(f"{seconds.get(phase, 0.0):.3f}" for phase in PHASES))
    return drawn
