"""The commands.  Each is a thin layer over a function that a script can call as well."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from mpicomp.errors import ConfigError, MpicompError
from mpicomp.launch import launch, leave
from mpicomp.progress import rounds, stages
from mpicomp.signals import remember_signals
from mpicomp.tables import phases_table, summary_table, terminal
from mpicomp.transports import launched_rank, launched_ranks

INTERRUPTED = 130  # exit status of what a signal ended in good order: to be resumed


def main() -> None:
    """Run the command line.  Errors are printed once, by rank 0, without a traceback."""
    remember_signals()
    try:
        status = cli.main(prog_name="mpicomp", standalone_mode=False)
    except click.ClickException as error:
        status = _complain(error.show, error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except MpicompError as error:
        message = f"mpicomp: {error}"
        status = _complain(lambda: click.echo(message, err=True), 1)
    leave(status if isinstance(status, int) else 0)


def _complain(show: Any, status: int) -> int:
    # All ranks meet the same error, and all leave with the same status; one of them says so.
    if launched_rank() == 0:
        show()
    return status


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="mpicomp")
def cli() -> None:
    """Distributed optimisation with compressed communication, over real MPI ranks.

    Without --ranks, and outside mpirun, everything runs in one process: the same bytes, the same
    iterates.  `mpirun -n 4 mpicomp run ...` is `mpicomp run --ranks 4 ...`.
    """


ranks_option = click.option("--ranks", type=click.IntRange(1), help="Start that many MPI ranks.")
server_option = click.option(
    "--server",
    type=click.Choice(["shared", "dedicated"]),
    default="shared",
    show_default=True,
    help="Whether rank 0 hosts workers too, or is the server only.",
)
device_option = click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where vectors, gradients and compression are; ranks on a host share its GPUs.",
)


# For a job script that is submitted again and again, --resume-or-start is right each time.
resume_options = (
    click.option("--resume", "resume", flag_value="yes", help="Continue what --out holds."),
    click.option(
        "--resume-or-start", "resume", flag_value="if begun", help="Continue what --out holds, if anything."
    ),
)
RESUME = {None: False, "yes": True, "if begun": None}  # as ``run`` and ``compare`` take it

run_options = (
    click.option("--problem", required=True, help="Such as \"logistic(data='digits', lam=1e-3)\"."),
    click.option("--method", required=True, help='Such as "marina(Q=randk(k=0.01), gamma=theory)".'),
    click.option("--workers", type=click.IntRange(1), default=8, show_default=True),
    click.option("--rounds", type=click.IntRange(1), default=1000, show_default=True),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True),
    ranks_option,
    server_option,
    device_option,
    click.option(
        "--every", type=click.IntRange(1), default=10, show_default=True, help="Rounds between rows."
    ),
    click.option("--target-grad-norm-sq", type=float, help="Stop when |∇f|² is at most this."),
    click.option("--max-bytes", type=click.IntRange(1), help="Stop after this many bytes, both directions."),
    click.option("--max-seconds", type=float, help="Stop after this many seconds."),
    click.option("--out", type=click.Path(path_type=Path), help="Folder for the record of the run."),
    *resume_options,
    click.option("--checkpoint-every", type=click.IntRange(1), help="Rounds between checkpoints in --out."),
    click.option(
        "--stall-timeout",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        help="End the job, naming who is silent, when ranks have waited that long [off].",
    ),
    click.option(
        "--verify-bytes", is_flag=True, help="Fail unless MPI's own count is the ledger's, byte for byte."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the outcome as one line of JSON."),
)


def with_options(options: Sequence[Any]) -> Any:
    """One decorator for several options, which the help lists in their order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


@cli.command()
@with_options(run_options)
def run(ranks: int | None, server: str, resume: str | None, as_json: bool, **options: Any) -> int:
    """Run one method on one problem."""
    from mpicomp.config import parse_method, parse_problem, to_text
    from mpicomp.run import run as run_method

    method, problem = parse_method(options.pop("method")), parse_problem(options.pop("problem"))
    if _elsewhere(ranks):
        return _relaunch(ranks)
    with rounds(options["rounds"], _watched()) as progress:
        options |= {"resume": RESUME[resume], "dedicated": server == "dedicated"}
        outcome = run_method(method, problem, progress=progress, **options)
    if launched_rank() == 0:
        summary = outcome.summary() | {"method": to_text(outcome.method), "problem": to_text(outcome.problem)}
        if as_json:
            click.echo(json.dumps(summary))
        else:
            _show(summary_table(summary), phases_table(summary))
    return INTERRUPTED if outcome.status == "interrupted" else 0


@cli.command()
@with_options(run_options)
@click.option("--nodes", type=click.IntRange(1), help="Nodes to spread the ranks over.")
@click.option("--time", metavar="LIMIT", help="How long it may take, as sbatch has it: 01:30:00, or minutes.")
@click.option("--partition", help="Where to run, as `sinfo` lists them.")
@click.option("--account", help="Whom to charge.")
@click.option("--requeue", is_flag=True, help="Save and queue again when time is up, until it is done.")
@click.option("--dry-run", is_flag=True, help="Show the job script and do not submit it.")
@click.pass_context
def submit(
    context: click.Context,
    method: str,
    problem: str,
    ranks: int | None,
    out: Path | None,
    nodes: int | None,
    time: str | None,
    partition: str | None,
    account: str | None,
    requeue: bool,
    dry_run: bool,
    **_: Any,
) -> int:
    """Submit a run to Slurm: the options of `run`, and what to ask of Slurm.

    For further options of sbatch, save what --dry-run shows and edit it, or set sbatch's own variables,
    such as SBATCH_QOS.
    """
    from mpicomp.config import parse_method, parse_problem
    from mpicomp.submit import job_script
    from mpicomp.submit import submit as hand_over

    parse_method(method), parse_problem(problem)
    if requeue and out is None:
        raise ConfigError("--requeue needs a folder to save the state in: give --out.")
    request = {
        "ntasks": ranks or 1,
        "nodes": nodes,
        "time": time,
        "partition": partition,
        "account": account,
    }
    script = job_script(requeue, request, _given(context, [o for o in run.params if o.name != "ranks"]))
    if dry_run:
        click.echo(script, nl=False)
        return 0
    return hand_over(script)


def _given(context: click.Context, options: Sequence[click.Parameter]) -> list[str]:
    """Those of ``options`` that the command line has, as it would be written."""
    words: list[str] = []
    for option in options:
        value = context.params[str(option.name)]
        if context.get_parameter_source(str(option.name)) is not ParameterSource.COMMANDLINE:
            continue
        if not getattr(option, "is_flag", False):
            words += [option.opts[0], str(value)]
        elif value in (True, getattr(option, "flag_value", None)):
            words.append(option.opts[0])
    return words


@cli.command()
@click.argument("suite", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the results [runs/NAME OF SUITE].")
@with_options(resume_options)
@click.option(
    "--part", metavar="I/N", help="Run one N-th of it; whichever part ends last writes table and figure."
)
@ranks_option
@server_option
@device_option
def compare(
    suite: Path,
    out: Path | None,
    resume: str | None,
    part: str | None,
    ranks: int | None,
    server: str,
    device: str,
) -> int:
    """Run the methods of SUITE.toml on its problem, or on that of each [[case]]; write table and figure."""
    from mpicomp.compare import WHOLE, compare_all
    from mpicomp.compare import compare as compare_methods
    from mpicomp.results import unfinished
    from mpicomp.study import Study, load
    from mpicomp.suite import parse_part

    loaded, share = load(suite), WHOLE if part is None else parse_part(part)
    if _elsewhere(ranks):
        return _relaunch(ranks)
    folder = out or Path("runs") / suite.stem
    with stages(_watched()) as progress:
        try:
            options: Any = {"part": share, "dedicated": server == "dedicated", "device": device}
            # The parts of one comparison share its folder.
            options |= {"progress": progress, "resume": None if part else RESUME[resume]}
            if isinstance(loaded, Study):
                compare_all(loaded, folder, **options)
            else:
                compare_methods(loaded, folder, **options)
        except KeyboardInterrupt:
            message = f"mpicomp: interrupted. --resume continues, with what {folder} holds."
            return _complain(lambda: click.echo(message, err=True), INTERRUPTED)
    if launched_rank() == 0:
        from mpicomp.report import publish, publish_study

        if part and (missing := unfinished(folder)):
            runs = "1 run" if missing == 1 else f"{missing} runs"
            click.echo(f"part {part} is done; {runs} of other parts missing yet")
            return 0
        if isinstance(loaded, Study):
            lines = publish_study(folder)
            _show(*(terminal(lines[case.label], case.suite) for case in loaded.cases))
        else:
            _show(terminal(publish(folder), loaded))
        click.echo(f"{folder}/figure.png, table.md", err=_on_stderr())
    return 0


@cli.command()
@click.argument(
    "folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--out", type=click.Path(path_type=Path), help="The figure [FOLDER/figure.png].")
def plot(folders: tuple[Path, ...], out: Path | None) -> None:
    """Draw the figure of a comparison, or of one or several runs, from the saved rows."""
    from mpicomp.report import plot as draw

    click.echo(draw(folders, out))


@cli.command("list")
@click.argument("kind", required=False, type=click.Choice(["methods", "compressors", "problems", "data"]))
def list_(kind: str | None) -> None:
    """Every method, compressor, problem and data set, with parameters and paper."""
    from mpicomp.catalogue import catalogue

    for line in catalogue(kind):
        click.echo(line)


@cli.group()
def data() -> None:
    """Data sets: fetch them; `mpicomp list data` says which there are."""


@data.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--from", "source", help="A folder or the URL of a mirror, instead of the official address.")
def fetch(names: tuple[str, ...], source: str | None) -> None:
    """Fetch data sets, check them against their known SHA-256, and parse them into the cache."""
    from mpicomp.data import fetch as fetch_set

    for name in names:
        found = fetch_set(name, source)
        rows, features = found.shape
        click.echo(f"{name}: {rows} rows, {features} features, sha256 {found.sha256[:12]}")


@cli.command()
def doctor() -> int:
    """Say which MPI, how many ranks, GPU and Slurm there are, and what to do about what is wrong."""
    from mpicomp.doctor import examine

    findings = examine()
    for finding in findings if launched_rank() == 0 else []:
        click.echo(finding)
    return 0 if all(f.good for f in findings) else 1


@cli.command("launch", context_settings={"ignore_unknown_options": True})
@click.option("--ranks", type=click.IntRange(1), required=True)
@click.argument("script", nargs=-1, required=True, type=click.UNPROCESSED)
def launch_(ranks: int, script: tuple[str, ...]) -> int:
    """Run a Python SCRIPT of your own on several ranks: mpirun, with the flags it needs here."""
    return launch(ranks, ["-m", "mpi4py", *script])


@cli.group()
def bench() -> None:
    """Benchmarks, each beside the machine's own limit."""


@bench.command("round")
@click.option("--ranks", type=click.IntRange(2), default=4, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as one line of JSON.")
def bench_round(ranks: int, as_json: bool) -> int:
    """Rounds a second of MARINA + RandK, beside a bare mpi4py loop moving the same bytes."""
    if _elsewhere(ranks):
        return _relaunch(ranks)
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
    kind = click.IntRange(1000)
    return click.option(
        "-d", "dimensions", type=kind, multiple=True, default=default, show_default=bool(default)
    )


@bench.command("kernels")
@_dimensions()
@click.option("--dtype", type=click.Choice(["f4", "f8"]), default="f4", show_default=True)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_kernels(dimensions: tuple[int, ...], dtype: str, device: str, as_json: bool) -> int:
    """What compressing, and adding what was received, cost beside a copy of the vector.

    On the CPU with one thread, by default at d = 10^6 and 25*10^6; on a GPU in f4, at 25*10^6, 10^8, 10^9.
    """
    if device == "cuda":
        from mpicomp.bench.cuda import SIZES, device_kernels

        if dtype != "f4":
            raise ConfigError(f"--dtype {dtype} with --device cuda; allowed: f4.")
        figures = iter(device_kernels(dimensions or SIZES))
        line = "{call}, d = {d}: {seconds:.3g} s, {fraction:.2f} of a copy, {gigabytes_per_second:.0f} GB/s"
    else:
        from mpicomp.bench.kernels import kernel_costs

        figures = chain.from_iterable(kernel_costs(d, dtype) for d in dimensions or (10**6, 25 * 10**6))
        line = (
            "{compressor}, d = {d}, {dtype}: compress {compress_seconds:.3g} s, {compress_copies:.2f} copies "
            "of {copied} values; add {add_seconds:.3g} s, {add_copies:.2f} copies"
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


@bench.command("models")
@click.option("--data", default="digits", show_default=True, help="Images, as for mlp(data=..).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def bench_models(data: str, as_json: bool) -> int:
    """Bits a symbol with the model of another round, or layer, beside a message's own and the packed form."""
    from mpicomp.bench.models import model_costs

    for case in model_costs(data):
        by = ", ".join(f"{bits:.3f} by {name}" for name, bits in case["by_model_of"].items())
        line = "{method}, {message}: {packed:.3f} packed, {fitted:.3f} fitted; {by}; entropy {entropy:.3f}"
        click.echo(json.dumps(case) if as_json else line.format(**case, by=by))
    return 0


def _elsewhere(ranks: int | None) -> bool:
    """Whether this process is to start ``ranks`` ranks, and not to be one of them."""
    started = launched_ranks()
    if ranks is None or ranks == started:
        return False
    if started is not None and started > 1:
        raise ConfigError(f"--ranks {ranks}, but the launcher has started {started}. Leave --ranks out.")
    return ranks > 1


def _relaunch(ranks: int | None) -> int:
    """This very command on ``ranks`` ranks."""
    assert ranks is not None
    return launch(ranks, ["-m", "mpicomp", *sys.argv[1:]])


def _watched() -> bool:
    """Whether a person is watching this rank's standard error, through mpirun's pipes perhaps."""
    return launched_rank() == 0 and (sys.stderr.isatty() or "MPICOMP_TERMINAL" in os.environ)


def _on_stderr() -> bool:
    """Whether output follows a progress bar through mpirun, which keeps order within a stream only."""
    return os.environ.get("MPICOMP_TERMINAL") == "both"


def _show(*tables: Any) -> None:
    from rich.console import Console

    # In a log or a pipe as wide as a table needs to be; under `launch` COLUMNS says how wide that is.
    width = None if sys.stdout.isatty() else 140
    # The height is of no use, but without it rich does not believe the width of a plain terminal.
    console = Console(width=int(os.environ.get("COLUMNS", 0)) or width, height=25, stderr=_on_stderr())
    for table in tables:
        console.print(table)
