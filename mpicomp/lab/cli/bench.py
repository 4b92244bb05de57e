"""The commands `bench ..` that measure this machine."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import click

from mpicomp.base.errors import ConfigError
from mpicomp.base.files import refuse_unwritable
from mpicomp.lab.cli.options import Count, Listed, Place
from mpicomp.lab.cli.root import cli, elsewhere, refuse_ranks, relaunch
from mpicomp.lab.cli.sections import SectionedGroup
from mpicomp.transports.launcher import launched_rank, launched_ranks

ON_RANKS = ("round", "aggregate")  # the other commands time what one process does or starts
RANKS = 4

ranks_option = click.option(
    "--ranks",
    type=click.IntRange(2),
    help=f"Number of MPI ranks.  [default: {RANKS}, or as many as a launcher has started]",
)


def _ranks(asked: int | None) -> int:
    started = launched_ranks() or 1
    return asked or (started if started > 1 else RANKS)


@cli.group(
    cls=SectionedGroup,
    sections={
        "On this machine": ["round", "aggregate", "kernels", "images", "traffic"],
        "On emulated hosts of this machine, as root": ["link", "serving", "train"],
    },
    examples=[
        "mpicomp bench round --ranks 4",
        "mpicomp bench kernels -d 1e6 --dtype f8",
        "mpicomp bench link link_digits --rate 100mbit,1gbit   # a suite that comes with the package",
        'mpicomp bench train --links "" --d 1e5 --no-transformer',
    ],
)
def bench() -> None:
    """Run benchmarks on this machine.

    Most print their result beside a limit of the machine, such as the time of a memory copy.
    """
    command = click.get_current_context().invoked_subcommand
    if command not in ON_RANKS:
        refuse_ranks(f"bench {command}")


@bench.command("round")
@ranks_option
@click.option("--json", "as_json", is_flag=True, help="Print the figures as one line of JSON.")
def bench_round(ranks: int | None, as_json: bool) -> int:
    """Count rounds per second of MARINA with RandK.

    Prints beside them the rate of a plain mpi4py loop that moves the same bytes.
    """
    if elsewhere(_ranks(ranks)):
        return relaunch(_ranks(ranks))
    from mpicomp.lab.bench.round import round_overhead

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


@bench.command("aggregate")
@ranks_option
@click.option(
    "-d",
    "dimensions",
    type=Count(100),
    multiple=True,
    help="Dimension of the gradients; may be given several times.  [default: 1e4, 1e6, 25e6]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_aggregate(ranks: int | None, dimensions: tuple[int, ...], as_json: bool) -> int:
    """Time one call of Aggregator.

    Prints beside it the times of a dense MPI_Allreduce and of the compressor alone.
    """
    if elsewhere(_ranks(ranks)):
        return relaunch(_ranks(ranks))
    from mpicomp.lab.bench.aggregate import DIMENSIONS, aggregate_cost

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
@click.option(
    "-d",
    "dimensions",
    type=Count(100),
    multiple=True,
    help="Dimension of the vectors; may be given several times.  "
    "[default: 100, 1e6, 25e6; on a GPU 25e6, 1e8, 1e9]",
)
@click.option(
    "--dtype",
    type=click.Choice(["f4", "f8"]),
    default="f4",
    help="Format of the vectors: f4 is float32, f8 float64.  On a GPU f4 alone.",
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="Processor to time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_kernels(dimensions: tuple[int, ...], dtype: str, device: str, as_json: bool) -> int:
    """Time each compressor, relative to a memory copy.

    Prints the time to compress a vector and the time to add a received message, each divided by the time of
    copying the vector.  On the CPU the command uses MPICOMP_NUM_THREADS threads (default 1), and times torch
    too if it is installed.
    """
    if device == "cuda":
        from mpicomp.lab.bench.cuda import SIZES, device_kernels

        if dtype != "f4":
            raise ConfigError(f"--dtype {dtype} with --device cuda; allowed: f4.")
        figures = device_kernels(dimensions or SIZES)
        line = "{call}, d = {d}: {seconds:.3g} s, {fraction:.2f} of a copy, {gigabytes_per_second:.0f} GB/s"
    else:
        from mpicomp.lab.bench.kernels import kernel_costs

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


@bench.command("images")
@click.argument("source", metavar="IMAGES")
@click.option(
    "--model", type=Place(), required=True, help="A model of `images train --kind local`: its file or folder."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_images(source: str, model: Path, as_json: bool) -> int:
    """Count bits per pixel of grey IMAGES by codec.

    The codecs are a model, PNG, WebP, JPEG-XL, brotli and others (mpicomp[peers]).
    """
    from mpicomp.images import ImageModel
    from mpicomp.images.grey import load_grey
    from mpicomp.lab.bench.images import image_costs

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


@bench.command("traffic")
@click.option("--d", "dimension", type=Count(), default="1e5", help="Dimension of the gradients.")
@click.option(
    "--workers", type=Listed(Count()), default="4,16,64,256", help="Numbers of workers, one on each rank."
)
@click.option("--out", type=Place(), help="Folder for traffic.png.")
def bench_traffic(dimension: int, workers: list[int], out: Path | None) -> None:
    """Count bytes per round through the busiest rank.

    The bytes are counted in one process, for each number of workers.
    """
    from mpicomp.base.units import human_bytes
    from mpicomp.lab.bench.figures import draw_traffic
    from mpicomp.lab.bench.serving.traffic import traffic
    from mpicomp.lab.experiment.canvas import save

    if out is not None:
        refuse_unwritable(out)
    rows = []
    for row in traffic(workers, dimension):
        rows.append(row)
        click.echo(f"{row['method']}, {row['workers']} workers, {row['server']}: {human_bytes(row['bytes'])}")
    if out is not None:
        save(draw_traffic(rows), out / "traffic.png")
        click.echo(f"{out}/traffic.png", err=True)
