"""Commands that run methods: run, submit, compare."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from mpicomp.base.errors import ConfigError
from mpicomp.lab.cli.options import (
    PLACE,
    RESUME,
    RUN_SECTIONS,
    Place,
    place_options,
    resume_options,
    run_options,
    with_options,
)
from mpicomp.lab.cli.progress import rounds, stages
from mpicomp.lab.cli.root import (
    INTERRUPTED,
    cli,
    complain,
    elsewhere,
    on_stderr,
    relaunch,
    show_tables,
    watched,
)
from mpicomp.lab.cli.sections import SectionedCommand
from mpicomp.lab.cli.suites import SuiteFile
from mpicomp.lab.experiment.run_tables import phases_table, summary_table
from mpicomp.lab.experiment.tables import terminal
from mpicomp.runtime.callbacks import Callback, JSONLines, TensorBoard, together
from mpicomp.runtime.glance import risen
from mpicomp.runtime.placement import ON_FAILURE
from mpicomp.transports.launcher import launched_rank, launched_ranks


@cli.command(
    cls=SectionedCommand,
    sections=RUN_SECTIONS,
    examples=[
        'mpicomp run --problem "logistic(data=digits, lam=1e-3)" --method "marina(Q=randk(k=0.1))" --ranks 4',
        'mpicomp run --problem "quadratics(d=1000)" --method "ef21(topk(k=10), gamma=theory*4)" --out runs/a',
        'mpicomp run --problem "mlp(data=digits)" --method "efsgd(sign, gamma=0.1, batch=32)" --rounds 200',
        "mpicomp list marina     # the parameters of a method, compressor or problem",
    ],
)
@with_options(run_options)
def run(ranks: int | None, resume: str | None, as_json: bool, **options: Any) -> int:
    """Run one method on one problem."""
    from mpicomp.runtime.run import run as run_method
    from mpicomp.text.config import parse_method, parse_problem, to_text

    method, problem = parse_method(options.pop("method")), parse_problem(options.pop("problem"))
    options["x0"] = _read_x0(options["x0"])
    options["callback"] = _callback(options.pop("follow"), options.pop("tensorboard"))
    if elsewhere(ranks):
        return relaunch(ranks, survive=ON_FAILURE[options["on_failure"]])
    with rounds(options["rounds"], watched()) as progress:
        options |= {"resume": RESUME[resume]}
        outcome = run_method(method, problem, progress=progress, **options)
    if launched_rank() == 0:
        summary = outcome.summary() | {"method": to_text(outcome.method), "problem": to_text(outcome.problem)}
        if as_json:
            click.echo(json.dumps(summary))
        else:
            show_tables(summary_table(summary), phases_table(summary))
        if above := risen(outcome.rows):
            click.echo(f"mpicomp: f ended {above}: the step size may be too large.", err=True)
    return INTERRUPTED if outcome.status == "interrupted" else 0


def _callback(file: Path | None, folder: Path | None) -> Callback | None:
    """The callback of --follow and --tensorboard.  Raises ``ConfigError`` if tensorboard is not installed."""
    rows = [] if file is None else [JSONLines(file)]
    curves = [] if folder is None else [TensorBoard(folder)]
    return together(*rows, *curves) if rows or curves else None


def _read_x0(path: Path | None) -> Any:
    """The array in the file ``path``, on the server only.  Raises ``ConfigError`` if it holds none."""
    if path is None or launched_rank() != 0:
        return None
    from mpicomp.lab.experiment.start import read_x0

    return read_x0("--x0", path)


@cli.command(
    cls=SectionedCommand,
    sections={
        "Slurm": ["--nodes", "--time", "--partition", "--account", "--requeue", "--dry-run"],
        **RUN_SECTIONS,
    },
    examples=[
        'mpicomp submit --problem "quadratics(d=1000)" --method gd --ranks 16 --nodes 4 --time 00:30:00',
        "mpicomp submit --problem quadratics --method gd --requeue --out runs/long --dry-run",
    ],
)
@with_options(run_options)
@click.option(
    "--nodes",
    type=click.IntRange(1),
    help="Nodes for the ranks, which are Slurm's tasks.  [default: Slurm's choice]",
)
@click.option("--time", metavar="LIMIT", help="Time limit in sbatch's form: 01:30:00, or minutes.")
@click.option("--partition", help="Slurm partition; `sinfo` lists them.")
@click.option("--account", help="Slurm account to charge.")
@click.option(
    "--requeue",
    is_flag=True,
    help="Shortly before the time limit, save the run in --out and queue the job again, until the run is "
    "done; needs --out.  For several seeds, give the script that --dry-run shows to sbatch --array=0-4: each "
    "task takes its number as seed.",
)
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
    **options: Any,
) -> int:
    """Submit a run to Slurm as a batch job.

    Takes the options of `run`, and the resources to request.  For further options of sbatch, save the script
    that --dry-run shows and edit it, or set sbatch's environment variables, such as SBATCH_QOS.

    To submit a suite, use sbatch --wrap='mpicomp compare SUITE ..'; see docs/cluster.md.
    """
    from mpicomp.lab.jobs.submit import job_script
    from mpicomp.lab.jobs.submit import submit as hand_over
    from mpicomp.runtime.limits import Limits
    from mpicomp.runtime.observation import Observation
    from mpicomp.runtime.placement import Placement
    from mpicomp.text.config import parse_method, parse_problem

    parse_method(method), parse_problem(problem)
    # What `run` would refuse is refused here: a job may wait for hours before it starts.
    groups: Any = (Limits, Observation, Placement)
    limits, observation, _ = (group(**{f.name: options[f.name] for f in fields(group)}) for group in groups)
    limits.check_observed(observation)
    if out is None and (requeue or options["resume"] or options["checkpoint_every"]):
        raise ConfigError("--requeue, --resume and --checkpoint-every keep a state: give --out.")
    request = {
        "ntasks": ranks or 1,
        "nodes": nodes,
        "gpus-per-task": 1 if options["device"] == "cuda" else None,
        "time": time,
        "partition": partition,
        "account": account,
    }
    told = {"ranks", "resume"} if requeue else {"ranks"}  # by the script itself
    script = job_script(requeue, request, _given(context, [o for o in run.params if o.name not in told]))
    if dry_run:
        click.echo(script, nl=False)
        return 0
    return hand_over(script)


def _given(context: click.Context, options: Sequence[click.Parameter]) -> list[str]:
    """The words of a command line for those ``options`` that the user gave."""
    words: list[str] = []
    for option in options:
        value = context.params[str(option.name)]
        if context.get_parameter_source(str(option.name)) is not ParameterSource.COMMANDLINE:
            continue
        if not getattr(option, "is_flag", False):
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += [option.opts[0], text]
        elif value in (True, getattr(option, "flag_value", None)):
            words.append(option.opts[0])
    return words


@cli.command(
    cls=SectionedCommand,
    sections={
        "Share of the runs": ["--part"],
        "Ranks and communication": PLACE,
        "Output": ["--out"],
        "Reliability": ["--resume", "--resume-or-start"],
    },
    examples=[
        "mpicomp compare demo --ranks 4           # a suite that comes with the package",
        "mpicomp suites copy demo                 # .. and a copy of it to edit:",
        "mpicomp compare demo.toml --out runs/mine",
        "mpicomp compare demo.toml --out runs/mine --resume",
    ],
)
@click.argument("suite", type=SuiteFile())
@click.option("--out", type=Place(), help="Folder for the results [runs/NAME OF SUITE].")
@with_options(resume_options)
@click.option(
    "--part",
    metavar="I/N",
    help="Run only part I of N, and none of the runs that --out already holds.  The part that ends last "
    "writes table and figure.",
)
@with_options(place_options)
def compare(
    suite: Path,
    out: Path | None,
    resume: str | None,
    part: str | None,
    ranks: int | None,
    **place: Any,
) -> int:
    """Run all methods of a SUITE; write table and figure.

    Each method runs on the suite's problem or, if the suite has several [[case]] tables, on the problem of
    each.  SUITE is a TOML file, or one of the names that `mpicomp suites list` shows.
    """
    from mpicomp.lab.experiment.compare import WHOLE, compare_all
    from mpicomp.lab.experiment.compare import compare as compare_methods
    from mpicomp.lab.experiment.folder import unfinished
    from mpicomp.lab.experiment.study import Study, load_file
    from mpicomp.lab.experiment.suite import parse_part
    from mpicomp.runtime.placement import Placement

    if (ranks or launched_ranks() or 1) > 1:
        _refuse_stream(suite)
    loaded, share = load_file(suite), WHOLE if part is None else parse_part(part)
    if elsewhere(ranks):
        return relaunch(ranks)
    folder = out or Path("runs") / suite.stem
    with stages(watched()) as progress:
        try:
            # The parts of one comparison share its folder.
            how = None if part else RESUME[resume]
            options: Any = {"part": share, "resume": how, "progress": progress}
            options["placement"] = Placement(**place)
            if isinstance(loaded, Study):
                compare_all(loaded, folder, **options)
            else:
                compare_methods(loaded, folder, **options)
        except KeyboardInterrupt:
            message = f"mpicomp: interrupted. --resume continues, with what {folder} holds."
            return complain(lambda: click.echo(message, err=True), INTERRUPTED)
    if launched_rank() == 0:
        from mpicomp.lab.experiment.report import publish, publish_study

        if part and (missing := unfinished(folder)):
            runs = "1 run" if missing == 1 else f"{missing} runs"
            click.echo(f"part {part} is done; {runs} of other parts missing yet")
            return 0
        if isinstance(loaded, Study):
            lines = publish_study(folder)
            show_tables(*(terminal(lines[case.label], case.suite) for case in loaded.cases))
        else:
            show_tables(terminal(publish(folder), loaded))
        figure = [f"{folder}/figure.png"] if (folder / "figure.png").exists() else []
        click.echo(", ".join([*figure, f"{folder}/table.md"]), err=on_stderr())
    return 0


def _refuse_stream(suite: Path) -> None:
    """Raise ``ConfigError`` for what can be read once, as /dev/stdin: every rank reads the suite."""
    place = suite.absolute()
    open_here = place == Path("/dev/stdin") or place.is_relative_to("/dev/fd") or place.match("/proc/*/fd/*")
    if open_here or not suite.is_file():
        raise ConfigError(f"{suite} can be read once, and every rank reads the suite: give a file.")
