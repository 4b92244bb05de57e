"""The commands `bench link, serving, train`, which may run on emulated hosts joined by network links."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from mpicomp.base.errors import ConfigError
from mpicomp.base.files import refuse_unwritable
from mpicomp.lab.cli.bench import bench
from mpicomp.lab.cli.options import RATE, TIME, Between, Count, Listed, Place, Positive
from mpicomp.lab.cli.sections import SectionedCommand
from mpicomp.lab.cli.suites import SuiteFile

_links = click.option(
    "--links",
    type=Listed(RATE, empty=True),
    default="100mbit,1gbit",
    help="Rates of the links between emulated hosts, one host for each rank, in bits a second each way; "
    'needs root.  "": no links.',
)
_one_host = click.option(
    "--one-host/--no-one-host", default=True, help="Also time all ranks on one host, without links."
)


def _places(one_host: bool, links: list[float]) -> list[float | None]:
    """The rates of --links, after None for one host.  Raises ``ConfigError`` if there is nothing to time."""
    if not one_host and not links:
        raise ConfigError('--no-one-host with --links "" leaves nothing to time. Leave one of them out.')
    return [*[None] * one_host, *links]


@bench.command(
    "link",
    cls=SectionedCommand,
    sections={
        "Hosts and links": ["--rate", "--latency", "--hosts", "--server"],
        "Output": ["--out", "--json"],
    },
    examples=[
        "mpicomp bench link link_digits",
        "mpicomp bench link link_delay --rate 100mbit,1gbit --latency 10ms --hosts 8",
    ],
)
@click.argument("suite", type=SuiteFile())
@click.option(
    "--rate",
    "rates",
    type=Listed(RATE),
    default="100mbit,1gbit,10gbit",
    help="Rates of the links, in bits a second each way.",
)
@click.option("--latency", type=TIME, default="0ms", help="One-way delay that the links add.")
@click.option(
    "--hosts",
    type=click.IntRange(2),
    help="Number of hosts, each with one worker.  [default: suite's workers]",
)
@click.option(
    "--server",
    type=click.Choice(["sharded", "shared"]),
    default="sharded",
    help="Average the messages on every rank, each for its blocks of the coordinates (sharded), or on rank 0 "
    "(shared).",
)
@click.option("--out", type=Place(), help="Folder for the results [runs/NAME OF SUITE].")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_link(
    suite: Path,
    rates: list[float],
    latency: float,
    hosts: int | None,
    server: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Time the methods of a SUITE on network links.

    Each method runs until it meets the suite's target.  The hosts are network namespaces of this machine,
    joined by links of the given rates; this needs root.  Uncompressed methods are also timed with
    MPI_Allreduce.  Prints each time.  Prints the speed-up over uncompressed GD or AGD, whichever is faster,
    and over the same method uncompressed.  Prints the link speed below which compressing wins, measured and
    by the model of `mpicomp predict`.  The step size is the suite's or, with `tune`, the best one found in
    one process.
    """
    from mpicomp.lab.bench.linkreport import publish, tables
    from mpicomp.lab.experiment.suite_file import load_suite

    loaded = load_suite(suite)
    folder = out or Path("runs") / suite.stem
    refuse_unwritable(folder)
    results = publish(
        loaded if hosts is None else replace(loaded, workers=hosts),
        rates,
        latency,
        folder,
        partial(click.echo, err=True),
        server,
    )
    if as_json:
        for row in results.to_json():
            click.echo(json.dumps(row))
    else:
        click.echo(tables(results))
    click.echo(f"{folder}/{'link.png, ' * results.reached}link.md, link.jsonl", err=True)


@bench.command("serving")
@click.option(
    "--ranks",
    type=click.IntRange(2),
    default=8,
    help="Number of MPI ranks; with --links, each on a host of its own.",
)
@_links
@_one_host
@click.option(
    "--d",
    "dimensions",
    type=Listed(Count()),
    default="1e5,1e6",
    help="Dimensions of the gradients, multiples of 1000.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_serving(
    ranks: int, links: list[float], one_host: bool, dimensions: list[int], as_json: bool
) -> None:
    """Time a round for each way of averaging.

    Messages are averaged by rank 0, by every rank for its blocks of the coordinates, and by MPI_Allreduce.
    """
    from mpicomp.lab.bench.serving.compare import table, time_averaging

    rows = []
    for row in time_averaging(dimensions, ranks, _places(one_host, links)):
        rows.append(row)
        if as_json:
            click.echo(json.dumps(row))
    if not as_json:
        click.echo(table(rows))


OF_TARGETS = [  # the options that need --to-target
    "--images",
    "--until-accuracy",
    "--until-loss",
    "--learning-rates",
    "--tuning-seeds",
    "--seeds",
    "--max-steps",
    "--max-seconds",
]


def _refuse_options_of_targets(context: click.Context) -> None:
    """Raise ``ConfigError`` if one of ``OF_TARGETS`` was given: without --to-target it would do nothing."""
    for option in context.command.params:
        source = context.get_parameter_source(str(option.name))
        if option.opts[0] in OF_TARGETS and source is ParameterSource.COMMANDLINE:
            raise ConfigError(f"{option.opts[0]} is for a target: add --to-target, or leave it out.")


@bench.command(
    "train",
    cls=SectionedCommand,
    sections={
        "Hosts and links": ["--links", "--one-host"],
        "Models and methods": ["--d", "--transformer", "--optimiser", "--steps", "--only"],
        "To a target": ["--to-target", *OF_TARGETS],
        "Output": ["--out", "--json"],
    },
    examples=[
        'mpicomp bench train --links "" --d 1e5 --no-transformer',
        'mpicomp bench train --links 20mbit --only "every 8 steps"',
        "mpicomp bench train --links 100mbit --to-target --max-seconds 300 --out runs/train",
    ],
)
@_links
@_one_host
@click.option(
    "--d",
    "dimensions",
    type=Listed(Count(), empty=True),
    default="1e5,1e6",
    help='Approximate numbers of parameters of the CNNs.  "": no CNN.',
)
@click.option("--transformer/--no-transformer", default=True, help="Also train a transformer.")
@click.option("--steps", type=click.IntRange(30), default=40, help="Number of timed steps of each method.")
@click.option(
    "--only",
    multiple=True,
    metavar="TEXT",
    help="Train only the methods with this text in their name; may be given several times.  A text that is "
    "in no name prints all names.  [default: all]",
)
@click.option(
    "--optimiser",
    type=click.Choice(["sgd", "adamw"]),
    default="sgd",
    help="Optimiser on each rank: SGD with momentum 0.9, or AdamW.  Methods that make their own steps are "
    "trained only with sgd.",
)
@click.option("--to-target", is_flag=True, help="Train to the targets instead of timing steps.")
@click.option(
    "--images",
    type=click.Choice(["fashion_mnist", "digits"]),
    default="fashion_mnist",
    help="Data set of the CNNs.",
)
@click.option("--until-accuracy", type=Between(0, 1), default=0.85, help="Target of the CNNs: test accuracy.")
@click.option(
    "--until-loss", type=Between(0), default=2.0, help="Target of the transformer: loss, in nats a character."
)
@click.option(
    "--learning-rates",
    type=Listed(Positive()),
    help="Learning rates to try.  Some methods with local steps also try rates of their outer optimiser; "
    "each uses its best pair.  [default: 0.05,0.1,0.2,0.025; with adamw 0.003,0.006,0.0015]",
)
@click.option(
    "--tuning-seeds", type=click.IntRange(1), default=1, help="Number of trainings for each learning rate."
)
@click.option("--seeds", type=click.IntRange(1), default=3, help="Number of trainings to the target.")
@click.option(
    "--max-steps", type=click.IntRange(40), default=4000, help="Largest number of steps of a training."
)
@click.option(
    "--max-seconds",
    type=Between(1),
    default=600,
    help="Largest number of seconds of a training to the target.",
)
@click.option("--out", type=Place(), help="Folder for train.jsonl, train.md and, with --to-target, a figure.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_train(
    links: list[float],
    one_host: bool,
    dimensions: list[int],
    transformer: bool,
    steps: int,
    only: tuple[str, ...],
    optimiser: str,
    to_target: bool,
    images: str,
    until_accuracy: float,
    until_loss: float,
    learning_rates: list[float] | None,
    tuning_seeds: int,
    seeds: int,
    max_steps: int,
    max_seconds: float,
    out: Path | None,
    as_json: bool,
) -> None:
    """Time training steps of mpicomp.torch and of DDP.

    DDP is torch's DistributedDataParallel, without and with its hooks.  The benchmark needs torch, and uses
    four ranks with one thread each, on one host and on emulated hosts joined by links.  With --to-target it
    reports the seconds and bytes until each method reaches a given test accuracy on images (Fashion-MNIST
    from the cache, or digits) or a given loss on text.  The steps to the target are counted on one host and
    multiplied by the time of a step on each link.
    """
    from mpicomp.lab.bench.train.compare import RATES, Ask, contest, named
    from mpicomp.lab.bench.train.report import checked, publish, tables
    from mpicomp.lab.bench.train.target import check
    from mpicomp.lab.bench.train.target import to_target as steps_to_target

    if not to_target:
        _refuse_options_of_targets(click.get_current_context())
    if out is not None:
        refuse_unwritable(out)
    models: list[tuple[str, int]] = [("cnn", d) for d in dimensions] + [("transformer", 0)] * transformer
    if not models:
        raise ConfigError('--no-transformer with --d "" leaves nothing to train. Leave one of them out.')
    ask = Ask(
        models=models,
        rates=_places(one_host, links),
        steps=steps,
        targets={"cnn": until_accuracy, "transformer": until_loss} if to_target else {},
        images=images,
        limit=max_seconds,
        most=max_steps,
        optimiser=optimiser,
        labels=named(only, optimiser, to_target),
        grid=(learning_rates or RATES[optimiser]) if to_target else (),
        seeds=range(1, seeds + 1),
        tuning=[0, *range(seeds + 1, seeds + tuning_seeds)],
    )
    rows = []
    say = partial(click.echo, err=True)
    for row in steps_to_target(ask, say=say) if to_target else contest(ask):
        rows.append(row)
        if as_json:
            click.echo(json.dumps(row))
    said = ""
    reached = [row for row in rows if row.get("reached")]
    if reached:
        fastest = min(reached, key=lambda row: row["seconds"])
        said = "\n" + checked(fastest, check(fastest, max_seconds)) + "\n"
    if not as_json:
        click.echo(tables(rows) + said)
    if out is not None:
        publish(rows, out, said)
        click.echo(f"{out}/train.md, train.jsonl", err=True)
