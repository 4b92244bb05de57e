"""Commands that measure this machine and predict larger ones: bench, predict."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import click

from mpicomp.base.errors import ConfigError
from mpicomp.cli.options import Place, Rate, Time, shards_option
from mpicomp.cli.root import cli, elsewhere, relaunch
from mpicomp.cli.sections import SectionedCommand, SectionedGroup
from mpicomp.cli.suites import SuiteFile
from mpicomp.runtime.placement import SERVERS, Placement
from mpicomp.transports.launcher import launched_rank


@cli.group(
    cls=SectionedGroup,
    sections={
        "On this machine": ["round", "aggregate", "kernels", "wire", "models", "images", "traffic"],
        "On hosts with links, as root": ["link", "serving", "train"],
    },
    examples=[
        "mpicomp bench round --ranks 4",
        "mpicomp bench kernels -d 1000000 --dtype f8",
        "mpicomp bench link link --rate 100mbit,1gbit   # the suite called link",
        'mpicomp bench train --links "" --d 1e5 --no-transformer',
    ],
)
def bench() -> None:
    """Benchmarks, each beside the machine's own limit."""


@bench.command("round")
@click.option("--ranks", type=click.IntRange(2), default=4, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as one line of JSON.")
def bench_round(ranks: int, as_json: bool) -> int:
    """Rounds a second of MARINA + RandK, beside a bare mpi4py loop moving the same bytes."""
    if elsewhere(ranks):
        return relaunch(ranks)
    from mpicomp.bench.round import round_overhead

    figures = round_overhead()
    if launched_rank() == 0:
        if as_json:
            click.echo(json.dumps(figures))
        else:
            line = (
                "d = {d}, {nonzeros_per_worker} non-zeros a worker, {ranks} ranks: "
                "{rounds_per_second:.4g} rounds/s, bare loop {bare_rounds_per_second:.4g}, "
                "{ratio:.2f} times its time; "
                "{ratio_to_still:.2f} times that of one that stands still"
            )
            for case in figures:
                click.echo(line.format(**case))
    return 0


def _dimensions(*default: int) -> Any:
    kind = click.IntRange(100)
    return click.option(
        "-d", "dimensions", type=kind, multiple=True, default=default, show_default=bool(default)
    )


@bench.command("aggregate")
@click.option("--ranks", type=click.IntRange(2), default=4, show_default=True)
@click.option("-d", "dimensions", type=click.IntRange(100), multiple=True, help="[default: 1e4, 1e6, 25e6]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_aggregate(ranks: int, dimensions: tuple[int, ...], as_json: bool) -> int:
    """A call of Aggregator, beside a dense Allreduce and beside its compressor alone."""
    if elsewhere(ranks):
        return relaunch(ranks)
    from mpicomp.bench.aggregate import DIMENSIONS, aggregate_cost

    line = (
        "d = {d}, {method}: {seconds:.3g} s a call, Allreduce {allreduce_seconds:.3g}, compressor alone "
        "{compressor_seconds:.3g}; {bytes_up} bytes up and {bytes_down} down a worker"
    )
    for d in dimensions or DIMENSIONS:
        for row in aggregate_cost(d):
            if launched_rank() == 0:
                click.echo(json.dumps(row) if as_json else line.format(**row))
    return 0


@bench.command("kernels")
@_dimensions()
@click.option("--dtype", type=click.Choice(["f4", "f8"]), default="f4", show_default=True)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_kernels(dimensions: tuple[int, ...], dtype: str, device: str, as_json: bool) -> int:
    """What compressing, and adding what was received, cost beside a copy of the vector.

    On the CPU with MPICOMP_NUM_THREADS threads (1), by default at d = 100, 10^6 and 25*10^6, and beside
    torch where it is installed; on a GPU in f4, at 25*10^6, 10^8 and 10^9.
    """
    if device == "cuda":
        from mpicomp.bench.cuda import SIZES, device_kernels

        if dtype != "f4":
            raise ConfigError(f"--dtype {dtype} with --device cuda; allowed: f4.")
        figures = device_kernels(dimensions or SIZES)
        line = "{call}, d = {d}: {seconds:.3g} s, {fraction:.2f} of a copy, {gigabytes_per_second:.0f} GB/s"
    else:
        from mpicomp.bench.kernels import kernel_costs

        figures = chain.from_iterable(kernel_costs(d, dtype) for d in dimensions or (100, 10**6, 25 * 10**6))
        line = (
            "{compressor}, d = {d}, {dtype}: compress {compress_seconds:.3g} s, {compress_copies:.2f} copies "
            "of {copied} values; add {add_seconds:.3g} s, {add_copies:.2f} copies; "
            "{bits_per_coordinate:.3g} bits a coordinate, |C(x) - x|²/|x|² = {error:.3g}"
        )
    for case in figures:
        plain = "; plain numpy compresses in {plain_copies:.3g} copies" if case.get("plain_copies") else ""
        click.echo(json.dumps(case) if as_json else (line + plain).format(**case))
    return 0


@bench.command("wire")
@_dimensions(10**6)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_wire(dimensions: tuple[int, ...], as_json: bool) -> int:
    """Bits of sets of k of d positions beside log2 C(d, k), and the coordinates coded a second."""
    from mpicomp.bench.wire import wire_costs

    line = (
        "d = {d}, k = {k}: {bits} bits, {of_optimum:.3f} of log2 C(d, k); "
        "{encoded_per_second:.3g} coordinates/s coded, {decoded_per_second:.3g} decoded"
    )
    for d in dimensions:
        for case in wire_costs(d):
            click.echo(json.dumps(case) if as_json else line.format(**case))
    return 0


@bench.command("images")
@click.argument("source", metavar="IMAGES")
@click.option("--model", type=Place(), required=True, help="A local model, or the folder of its training.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_images(source: str, model: Path, as_json: bool) -> int:
    """Bits a pixel of grey IMAGES, by a model, PNG, WebP, JPEG-XL, brotli and others (mpicomp[peers])."""
    from mpicomp.bench.images import image_costs
    from mpicomp.data import load_grey
    from mpicomp.imaging import ImageModel

    for case in image_costs(load_grey(source).pixels, ImageModel.load(model)):
        if as_json:
            click.echo(json.dumps(case))
            continue
        each = "     -" if case["each"] is None else f"{case['each']:6.3f}"
        click.echo(f"{case['codec']:>8}  {each} bits a pixel each, {case['together']:6.3f} together")
        if "entropy" in case:
            click.echo(
                "          together: {images_only:.4f} the images, {model_bytes} bytes the model; "
                "entropy {entropy:.4f}; {compressed_per_second:.3g} bytes/s in, "
                "{decompressed_per_second:.3g} out".format(**case)
            )
    return 0


@bench.command("models")
@click.option("--data", default="digits", show_default=True, help="Images, as for mlp(data=..).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_models(data: str, as_json: bool) -> int:
    """Bits a symbol with the model of another round, or layer, beside a message's own and the packed form."""
    from mpicomp.bench.entropy_models import model_costs

    for case in model_costs(data):
        by = ", ".join(f"{bits:.3f} by {name}" for name, bits in case["by_model_of"].items())
        line = "{method}, {message}: {packed:.3f} packed, {fitted:.3f} fitted; {by}; entropy {entropy:.3f}"
        click.echo(json.dumps(case) if as_json else line.format(**case, by=by))
    return 0


@bench.command(
    "link",
    cls=SectionedCommand,
    sections={
        "Hosts and links": ["--rate", "--latency", "--hosts", "--server"],
        "Output": ["--out", "--json"],
    },
    examples=[
        "mpicomp bench link link",
        "mpicomp bench link link_delay --rate 100mbit,1gbit --latency 10ms --hosts 8",
    ],
)
@click.argument("suite", type=SuiteFile())
@click.option("--rate", "rates", default="100mbit,1gbit,10gbit", show_default=True, help="Of the links.")
@click.option("--latency", type=Time(), default="0ms", show_default=True, help="That links add.")
@click.option("--hosts", type=click.IntRange(2), help="In the place of the suite's workers; one each.")
@click.option(
    "--server",
    type=click.Choice(["sharded", "shared"]),
    default="sharded",
    show_default=True,
    help="Whether every rank averages its share, or rank 0 all.",
)
@click.option("--out", type=Place(), help="Folder for the results [runs/NAME OF SUITE].")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_link(
    suite: Path, rates: str, latency: float, hosts: int | None, server: str, out: Path | None, as_json: bool
) -> None:
    """Time to accuracy of SUITE's methods on hosts joined by links of these rates; needs root.

    Dense methods are timed by MPI_Allreduce as well.  Prints the times, the speed-up over the faster way of
    dense GD and AGD and over that of the same method uncompressed, and the
    link speed below which compressing wins, measured and as the model of `mpicomp predict` has it.
    Each method has the step size of its text or, with `tune`, the best of a run in one process.
    """
    from mpicomp.base.units import parse_rate
    from mpicomp.bench.linkreport import publish, tables
    from mpicomp.experiment.suite_file import load_suite

    loaded = load_suite(suite)
    folder = out or Path("runs") / suite.stem
    results = publish(
        loaded if hosts is None else replace(loaded, workers=hosts),
        [parse_rate(rate) for rate in rates.split(",")],
        latency,
        folder,
        lambda what: click.echo(what, err=True),
        server,
    )
    if as_json:
        for row in results.to_json():
            click.echo(json.dumps(row))
    else:
        click.echo(tables(results))
    click.echo(f"{folder}/link.png, link.md, link.jsonl", err=True)


@bench.command("serving")
@click.option(
    "--ranks", type=click.IntRange(2), default=8, show_default=True, help="A host each, with --links."
)
@click.option(
    "--links", default="100mbit,1gbit", show_default=True, help='Of the hosts; needs root. "": none.'
)
@click.option("--one-host/--no-one-host", default=True, show_default=True, help="All ranks on this host too.")
@click.option("--d", "dimensions", default="1e5,1e6", show_default=True, help="Of the gradients.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_serving(ranks: int, links: str, one_host: bool, dimensions: str, as_json: bool) -> None:
    """A round by the ranks that average: the root, every rank its share of the coordinates, MPI_Allreduce."""
    from mpicomp.base.units import parse_rate
    from mpicomp.bench.serving.compare import compare, table

    rates = [None] * one_host + [parse_rate(rate) for rate in links.split(",") if rate]
    rows = []
    for row in compare([_dimension(d) for d in dimensions.split(",")], ranks, rates):
        rows.append(row)
        if as_json:
            click.echo(json.dumps(row))
    if not as_json:
        click.echo(table(rows))


@bench.command("traffic")
@click.option("--d", "dimension", default="1e5", show_default=True, help="Of the gradients.")
@click.option("--workers", default="4,16,64,256", show_default=True, help="One a rank.")
@click.option("--out", type=Place(), help="Folder for traffic.png.")
def bench_traffic(dimension: str, workers: str, out: Path | None) -> None:
    """Bytes a round through the busiest rank, by the number of workers, counted in one process."""
    from mpicomp.base.units import human_bytes
    from mpicomp.bench.serving.traffic import draw_traffic, traffic
    from mpicomp.experiment.canvas import save

    rows = []
    for row in traffic([_dimension(n) for n in workers.split(",")], _dimension(dimension)):
        rows.append(row)
        click.echo(f"{row['method']}, {row['workers']} workers, {row['server']}: {human_bytes(row['bytes'])}")
    if out is not None:
        save(draw_traffic(rows), out / "traffic.png")
        click.echo(f"{out}/traffic.png", err=True)


@bench.command(
    "train",
    cls=SectionedCommand,
    sections={
        "Hosts and links": ["--links", "--one-host"],
        "What to train": ["--d", "--transformer", "--steps"],
        "To a target": [
            "--to-target",
            "--images",
            "--until-accuracy",
            "--until-loss",
            "--learning-rates",
            "--tuning-seeds",
            "--seeds",
            "--max-steps",
            "--max-seconds",
        ],
        "Output": ["--out", "--json"],
    },
    examples=[
        'mpicomp bench train --links "" --d 1e5 --no-transformer',
        "mpicomp bench train --links 100mbit --to-target --max-seconds 300 --out runs/train",
    ],
)
@click.option(
    "--links", default="100mbit,1gbit", show_default=True, help='Of four hosts; needs root. "": none.'
)
@click.option(
    "--one-host/--no-one-host", default=True, show_default=True, help="Four ranks on this host too."
)
@click.option("--d", "dimensions", default="1e5,1e6", show_default=True, help='Of the CNNs, about. "": none.')
@click.option("--transformer/--no-transformer", default=True, show_default=True, help="d of some 2e5.")
@click.option("--steps", type=click.IntRange(30), default=40, show_default=True, help="Of each, timed.")
@click.option("--to-target", is_flag=True, help="Train to the targets, in the place of timing steps.")
@click.option(
    "--images", type=click.Choice(["fashion_mnist", "digits"]), default="fashion_mnist", show_default=True
)
@click.option("--until-accuracy", type=click.FloatRange(0, 1), default=0.85, show_default=True)
@click.option("--until-loss", type=click.FloatRange(0), default=2.0, show_default=True)
@click.option(
    "--learning-rates", default="0.05,0.1,0.2,0.025", show_default=True, help="Each contestant has its best."
)
@click.option(
    "--tuning-seeds", type=click.IntRange(1), default=1, show_default=True, help="Trainings for each rate."
)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Trainings to a target.")
@click.option("--max-steps", type=click.IntRange(40), default=4000, show_default=True, help="Of a training.")
@click.option("--max-seconds", type=click.FloatRange(1), default=600, show_default=True, help="To a target.")
@click.option("--out", type=Place(), help="Folder for train.jsonl, train.md and, with --to-target, a figure.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_train(
    links: str,
    one_host: bool,
    dimensions: str,
    transformer: bool,
    steps: int,
    to_target: bool,
    images: str,
    until_accuracy: float,
    until_loss: float,
    learning_rates: str,
    tuning_seeds: int,
    seeds: int,
    max_steps: int,
    max_seconds: float,
    out: Path | None,
    as_json: bool,
) -> None:
    """Milliseconds a training step beside torch's DistributedDataParallel and its hooks; needs torch.

    Four ranks with one thread each, on one host and on hosts joined by links.  With --to-target: seconds and
    bytes to the same test accuracy on images, Fashion-MNIST from the cache or digits, and to the same loss on
    text.  Steps to the target are counted on one host, and multiplied by the time of a step on each link.
    """
    from mpicomp.base.units import parse_rate
    from mpicomp.bench.train.compare import Ask, compare
    from mpicomp.bench.train.report import checked, publish, tables
    from mpicomp.bench.train.target import check
    from mpicomp.bench.train.target import to_target as steps_to_target

    models = [("cnn", _dimension(d)) for d in dimensions.split(",") if d]
    ask = Ask(
        models=models + ([("transformer", 0)] if transformer else []),
        rates=[None] * one_host + [parse_rate(rate) for rate in links.split(",") if rate],
        steps=steps,
        accuracy=until_accuracy if to_target else None,
        loss=until_loss if to_target else None,
        images=images,
        limit=max_seconds,
        most=max_steps,
        grid=[_positive(rate) for rate in learning_rates.split(",")] if to_target else (),
        seeds=range(1, seeds + 1),
        tuning=[0, *range(seeds + 1, seeds + tuning_seeds)],
    )
    rows = []
    for row in steps_to_target(ask) if to_target else compare(ask):
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


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < inf:
        raise ConfigError(f"--learning-rates has {text!r}; allowed: positive numbers, such as 0.05,0.1.")
    return value


def _dimension(text: str) -> int:
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        raise ConfigError(f"--d {text!r}; allowed: numbers such as 1e5, separated by commas.") from None


@cli.command()
@click.option("--problem", help="Such as \"logistic(data='digits', lam=1e-3)\"; runs here, with few workers.")
@click.option("--method", "methods", multiple=True, help="What to predict; may be given several times.")
@click.option("--up", type=click.FloatRange(0), help="Bytes of a worker's message, without --problem.")
@click.option("--down", type=click.FloatRange(0), help="Bytes of the broadcast, without --problem.")
@click.option("--workers", type=click.IntRange(2), required=True, help="One a rank and host.")
@click.option("--rate", type=Rate(), required=True, help="Of every host's link: 100mbit, 10gbit.")
@click.option("--latency", type=Time(), default="50us", show_default=True, help="One way, of all.")
@click.option("--rounds", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--server", type=click.Choice(SERVERS), default="shared", show_default=True)
@shards_option
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
    shards: int | None,
    as_json: bool,
) -> None:
    """Round time, server load and total time for numbers of workers that do not fit here.

    From the model that `mpicomp bench link` checks; its assumptions are printed too.
    """
    from mpicomp.bench.cost_model import Link
    from mpicomp.bench.predict import forecast, given, report
    from mpicomp.config import parse_method, parse_problem

    placement = Placement(server, shards)
    network: Any = {"workers": workers, "link": Link(rate, latency), "server": server}
    network["shards"] = min(placement.blocks(workers), workers)
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
