"""Commands that show what there is: plot, list, data, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mpicomp.base.errors import unknown
from mpicomp.cli.options import Place
from mpicomp.cli.root import cli
from mpicomp.transports.launcher import launched_rank


@cli.command()
@click.argument(
    "folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--out", type=Place(), help="The figure [FOLDER/figure.png].")
def plot(folders: tuple[Path, ...], out: Path | None) -> None:
    """Draw the figure of a comparison, or of one or several runs, from the saved rows."""
    from mpicomp.experiment.report import plot as draw

    click.echo(draw(folders, out))


KINDS = ("methods", "compressors", "problems", "data")


class Kind(click.ParamType):
    """One of the kinds, or the name of a class."""

    name = "kind"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from mpicomp.cli.catalogue import NAMES, class_named

        if value in KINDS or class_named(value) is not None:
            return value
        return self.fail(str(unknown("name", value, [*KINDS, *NAMES])), param, ctx)


@cli.command("list")
@click.argument("kind", required=False, type=Kind(), metavar="[methods|compressors|problems|data|NAME]")
def list_(kind: str | None) -> None:
    """Every method, compressor, problem and data set, with parameters and paper.

    With the NAME of one, what each of its parameters is, its default and what it may be.  A class of your
    own is named ./FILE.py:CLASS or MODULE:CLASS.
    """
    from mpicomp.cli.catalogue import catalogue

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
    from mpicomp.jobs.doctor import examine

    findings = examine()
    for finding in findings if launched_rank() == 0 else []:
        click.echo(finding)
    return 0 if all(f.good for f in findings) else 1
