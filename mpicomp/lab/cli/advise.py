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
@click.option("--step-seconds", type=Positive(), required=True, help="Seconds of one gradient of a worker.")
@click.option(
    "--convex/--nonconvex",
    default=None,
    help="Whether every f_i is convex.  [default: nonconvex; convex with --mu]",
)
@click.option("--mu", type=Positive(), help="Every f_i is strongly convex with this constant.")
@click.option("--batch", type=int, help="Samples of which a worker takes a gradient.  [default: all]")
@click.option("--up-only", is_flag=True, help="The way down costs nothing: only bytes up count.")
@click.option("--alike", is_flag=True, help="The workers' data are alike.")
def advise(**asked: Any) -> None:
    """Advise on a method, from what was measured.

    Prints one to three lines to paste, each with the bytes of a round, its predicted seconds beside dense
    rounds, and the figures that it rests on with their page.

    \b
    mpicomp advise --n 8 --d 1000 --link 10mbit --step-seconds 0.001 --convex
    mpicomp advise --n 4 --d 1e6 --link 100mbit --step-seconds 0.02 --batch 32
    """
    from mpicomp.lab.bench import advice

    click.echo(str(advice.advise(**asked)))
