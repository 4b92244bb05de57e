"""The argument SUITE of several commands, and the command `suites`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mpicomp.base.errors import ConfigError
from mpicomp.lab.cli.options import Place
from mpicomp.lab.cli.root import cli


class SuiteFile(click.Path):
    """A suite: the path of its TOML file, or the name of one that comes with the package."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from mpicomp.lab.experiment.shipped import located

        try:
            return super().convert(located(value), param, ctx)
        except ConfigError as error:
            self.fail(str(error), param, ctx)


@cli.group("suites")
def suites_group() -> None:
    """List or copy the suites that come with mpicomp."""


@suites_group.command("list")
def list_suites() -> None:
    """List the names and titles of the suites; `mpicomp compare NAME` runs one."""
    from mpicomp.lab.experiment.shipped import suites, title

    known = suites()
    width = max(map(len, known))
    for name, path in known.items():
        click.echo(f"{name:{width}}  {title(path)}")


@suites_group.command()
@click.argument("name")
@click.argument("folder", type=Place(), default=".")
def copy(name: str, folder: Path) -> None:
    """Copy the suite NAME into FOLDER, and print its path.

    Without FOLDER, the copy is written to the current folder.
    """
    from mpicomp.lab.experiment.shipped import copy as copy_suite

    click.echo(copy_suite(name, folder))
