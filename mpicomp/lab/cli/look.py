"""The commands plot, list, data and doctor: draw results, list classes, fetch data, check the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mpicomp.base.errors import unknown
from mpicomp.lab.cli.options import Place
from mpicomp.lab.cli.root import cli
from mpicomp.transports.launcher import launched_rank


@cli.command()
@click.argument(
    "folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option(
    "--x",
    help="Quantity on the x axis: rounds, up (bytes up), bytes (both directions), seconds or epochs.  "
    "Several, with commas between them, give a panel each.",
)
@click.option(
    "--y", help="Quantity on the y axis: gradient (|∇f|²), f, f-f*, or error (total error of error feedback)."
)
@click.option(
    "--xlim", metavar="A:B", help="Ends of the x axis, in its unit; A: or :B sets only one.  Needs one --x."
)
@click.option("--ylim", metavar="A:B", help="Ends of the y axis; A: or :B sets only one.")
@click.option("--style", default="screen", help="Sizes and fonts for a screen, paper or talk.")
@click.option(
    "--bands", default="range", help="Band that shows the spread over seeds: range, quantile or none."
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    help="Name of a curve, in place of its method; give one for each curve, in their order.",
)
@click.option(
    "--format", "format", help="Format of the file: png, pdf or svg.  [default: the ending of --out, or png]"
)
@click.option("--out", type=Place(), help="File of the figure.  [default: figure.png in the first folder]")
def plot(folders: tuple[Path, ...], out: Path | None, format: str | None, **words: Any) -> None:
    """Draw a figure from saved rows.

    FOLDERS are the folder of one comparison, or the folders of one or several runs.  Without --x and --y, the
    suite says what the axes show.
    """
    from mpicomp.lab.experiment.report import plot_files
    from mpicomp.lab.experiment.styling import as_look

    for path in plot_files(folders, out, as_look(**words), format):
        click.echo(path)


KINDS = ("methods", "compressors", "problems", "data")


class Kind(click.ParamType):
    """One of ``KINDS``, or the name of a class."""

    name = "kind"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from mpicomp.lab.cli.catalogue import NAMES, class_named

        if value in KINDS or class_named(value) is not None:
            return value
        return self.fail(str(unknown("name", value, [*KINDS, *NAMES])), param, ctx)


@cli.command("list")
@click.argument("kind", required=False, type=Kind(), metavar="[methods|compressors|problems|data|NAME]")
def list_(kind: str | None) -> None:
    """List methods, compressors, problems and data.

    Prints the parameters and the paper of each.  With a NAME, explains each parameter of that class: its
    meaning, its default and its allowed values.  Name a class of your own as ./FILE.py:CLASS or MODULE:CLASS.
    """
    from mpicomp.lab.cli.catalogue import catalogue

    for line in catalogue(kind):
        click.echo(line)


@cli.group()
def data() -> None:
    """Fetch data sets; `mpicomp list data` lists them."""


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
    """Check MPI, GPU and Slurm on this machine.

    Prints each finding, and how to fix it if something is wrong.
    """
    from mpicomp.lab.jobs.doctor import examine

    findings = examine()
    for finding in findings if launched_rank() == 0 else []:
        click.echo(finding)
    return 0 if all(f.good for f in findings) else 1
