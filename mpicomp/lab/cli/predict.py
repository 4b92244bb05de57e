"""The command `predict`: forecast the time of runs with more workers than this machine holds."""

from __future__ import annotations

import json
from typing import Any

import click

from mpicomp.base.errors import ConfigError
from mpicomp.lab.cli.options import OPTIONS, RATE, TIME
from mpicomp.lab.cli.root import cli, refuse_ranks
from mpicomp.runtime.placement import SERVERS, Placement


@cli.command()
@click.option(
    "--problem",
    help="The problem, such as \"logistic(data='digits', lam=1e-3)\"; short runs of it on this machine, "
    "with few workers, measure the costs.",
)
@click.option("--method", "methods", multiple=True, help="A method to predict; may be given several times.")
@click.option("--up", type=click.FloatRange(0), help="Bytes of a worker's message, without --problem.")
@click.option("--down", type=click.FloatRange(0), help="Bytes of the broadcast, without --problem.")
@click.option(
    "--workers",
    type=click.IntRange(2, 10**5),
    required=True,
    help="Number of workers, one on each rank and host.",
)
@click.option(
    "--rate",
    type=RATE,
    required=True,
    help="Rate of the link of each host, in bits a second each way: 100mbit.",
)
@click.option("--latency", type=TIME, default="50us", help="One-way latency of a link.")
@click.option("--rounds", type=click.IntRange(1, 10**18), default=1000, help="Rounds of the run.")
@click.option(
    "--server",
    type=click.Choice(SERVERS),
    default="shared",
    help="How messages are averaged, as in `mpicomp run`.",
)
@OPTIONS["blocks"]
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a method.")
def predict(
    problem: str | None,
    methods: tuple[str, ...],
    up: float | None,
    down: float | None,
    workers: int,
    rate: float,
    latency: float,
    rounds: int,
    server: str,
    blocks: int | None,
    as_json: bool,
) -> None:
    """Predict the time of runs with many workers.

    Prints the time of a round, the load of the server, the time of all rounds, and the assumptions.  The
    prediction uses the cost model that `mpicomp bench link` checks.  Give --problem and --method, or
    --up and --down:

    \b
    mpicomp predict --problem "quadratics(d=1000)" --method gd --workers 16 --rate 1gbit
    mpicomp predict --up 4e5 --down 4e6 --workers 16 --rate 1gbit
    """
    from mpicomp.lab.bench.cost_model import Link
    from mpicomp.lab.bench.predict import forecast, given, report
    from mpicomp.text.config import parse_method, parse_problem

    refuse_ranks("predict")
    placement = Placement(server, blocks)
    network: Any = {"workers": workers, "link": Link(rate, latency), "server": server}
    network["blocks"] = min(placement.block_count(workers), workers)
    if problem is not None and methods and up is None and down is None:
        chosen = parse_problem(problem)
        found = [forecast(parse_method(text), chosen, **network) for text in methods]
    elif problem is None and not methods and up is not None and down is not None:
        found = [given(up, down, **network)]
    else:
        raise ConfigError("predict takes either --problem and --method, or --up and --down.")
    if as_json:
        for one in found:
            click.echo(json.dumps(one.to_json(rounds)))
    else:
        click.echo(report(found, rounds))
