"""The command `advise`: lines to paste for given workers, dimension and link, from what was measured."""

from __future__ import annotations

from typing import Any

import click

from mpicomp.lab.cli.options import Count, Positive
from mpicomp.lab.cli.root import cli


@cli.command()
@click.option("--n", type=int, required=True, help="Number of workers, one on each host.")
@click.option("--d", type=Count(), required=True, help="The dimension, the number of parameters.")
@click.option(
    "--link", required=True, help="Rate of the link of each host, in bits a second each way: 100mbit."
)
@click.option("--latency", default="50us", help="One-way latency of a link.")
@click.option(
    "--step-seconds", type=Positive(), required=True, help="Seconds that a worker takes for one gradient."
)
@click.option(
    "--convex/--nonconvex",
    default=None,
    help="Whether every f_i is convex.  [default: nonconvex; convex with --mu]",
)
@click.option("--mu", type=Positive(), help="Constant with which every f_i is strongly convex.")
@click.option("--batch", type=int, help="Number of samples in a worker's batch.  [default: all]")
@click.option("--up-only", is_flag=True, help="Count only bytes up, as if sending down cost nothing.")
@click.option("--alike", is_flag=True, help="Also recommend methods that need workers with similar data.")
def advise(**asked: Any) -> None:
    """Recommend methods for your workers and link.

    Prints one to three methods to paste after --method.  Each comes with the bytes of a round, the predicted
    seconds of a round beside those of an uncompressed one, and the measurements that support it, with their
    page.

    \b
    mpicomp advise --n 8 --d 1000 --link 10mbit --step-seconds 0.001 --convex
    mpicomp advise --n 4 --d 1e6 --link 100mbit --step-seconds 0.02 --batch 32
    """
    from mpicomp.lab.bench import advice

    click.echo(str(advice.advise(**asked)))
