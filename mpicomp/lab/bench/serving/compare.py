"""The cost of a step by the ranks that average, on one host and on hosts joined by links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from mpicomp.base.errors import ConfigError
from mpicomp.base.units import human_bytes, human_rate
from mpicomp.lab.bench.hosts import Hosts
from mpicomp.lab.bench.job import rows_of
from mpicomp.lab.experiment.tables import markdown_table

ROWS = 1000  # of PowerSGD's matrices in ``rank.METHODS``; those of ARC-Top-K are 250 wide


def time_averaging(
    dimensions: Sequence[int], ranks: int, rates: Sequence[float | None], repeats: int = 3
) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``rank.measure`` with each of the ``rates`` of links; None: all ranks on this host.

    Raises ``ConfigError`` where hosts cannot be made, and for a dimension that a method cannot take; and
    ``MpicompError`` if the ranks fail.
    """
    for d in dimensions:
        if d % ROWS:
            raise ConfigError(
                f"d={d}; allowed: multiples of {ROWS}, which are matrices of whole rows. The nearest is "
                f"{max(1, round(d / ROWS)) * ROWS}."
            )
    asked = {"dimensions": list(dimensions), "repeats": repeats}
    for rate in rates:
        with nullcontext() if rate is None else Hosts(ranks, rate) as hosts:
            for row in rows_of("serving.rank", asked, ranks, hosts, f"averaging on {ranks} ranks"):
                yield {"rate": rate, **row}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: milliseconds a step, and bytes in the busier direction of the busiest rank."""
    ways = list(dict.fromkeys(row["server"] for row in rows))
    head = ["link", "d", "message", *ways, "busiest rank, shared", "sharded"]
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        where = "one host" if row["rate"] is None else human_rate(row["rate"])
        found.setdefault((where, row["d"], row["method"]), {})[row["server"]] = row
    lines = []
    for (where, d, method), by_way in found.items():
        times = [f"{1000 * by_way[way]['seconds']:.3g}" if way in by_way else "" for way in ways]
        crossed = [human_bytes(by_way[way]["busiest_bytes"]) for way in ("shared", "sharded")]
        lines.append([where, f"{d}", method, *times, *crossed])
    return f"ms a step, {rows[0]['ranks']} ranks\n\n" + markdown_table(head, lines)
