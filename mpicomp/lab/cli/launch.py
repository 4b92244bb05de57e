"""The command `launch`: run a script of one's own on several MPI ranks."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

import click

from mpicomp.base.errors import ConfigError
from mpicomp.base.files import present
from mpicomp.lab.cli.options import OPTIONS
from mpicomp.lab.cli.root import cli
from mpicomp.lab.jobs.launch import launch
from mpicomp.runtime.placement import ON_FAILURE


@cli.command("launch", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--ranks", type=click.IntRange(1), required=True, help="Start this many MPI ranks.")
@OPTIONS["on_failure"]
@click.argument("script", nargs=-1, required=True, type=click.UNPROCESSED)
def launch_(ranks: int, on_failure: str, script: tuple[str, ...]) -> int:
    """Run your own Python SCRIPT on several MPI ranks.

    Starts mpirun with mpicomp's settings and one thread a rank, or as many as OMP_NUM_THREADS says.  The
    script's own arguments follow it, as in `mpicomp launch --ranks 4 train.py --epochs 3`.
    """
    file, *words = script
    if file == "-m":
        _check_module(words[0] if words else "", ranks)
    elif file.startswith("-") and file not in ("-", "-c"):
        raise ConfigError(
            f"launch has no option {file}; allowed before the script: --ranks, --on-failure and -m. The "
            "script's own options follow its name."
        )
    elif not file.startswith("-") and not present(Path(file), ConfigError):
        raise ConfigError(
            f"no such file: {file}. launch runs a script, as in `mpicomp launch --ranks {ranks} train.py`, "
            "without `python` before it, or a module: `-m train`."
        )
    return launch(ranks, ["-m", "mpicomp.lab.jobs.script", *script], survive=ON_FAILURE[on_failure])


def _check_module(name: str, ranks: int) -> None:
    """Raise ``ConfigError``, in place of an error of each rank, if no module is called ``name``.

    One inside a package is left to the ranks: to look for it is to import the package.
    """
    top = name.partition(".")[0]
    if not top or not (top in sys.modules or find_spec(top) or PathFinder.find_spec(top, [""])):
        raise ConfigError(
            f"no module {name!r} on Python's path or in the current folder. launch runs a module, as in "
            f"`mpicomp launch --ranks {ranks} -m train`, or a script, without -m: `train.py`."
        )
