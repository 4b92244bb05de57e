"""The root command, and helpers that all commands share: start ranks, print from one rank."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from mpicomp.base.errors import ConfigError
from mpicomp.lab.cli.sections import SectionedGroup
from mpicomp.lab.jobs.launch import launch
from mpicomp.transports.launcher import STATUS, launched_by_mpi, launched_rank, launched_ranks

INTERRUPTED = 130  # exit status if a signal ended the work in good order; it can be resumed


@click.group(
    cls=SectionedGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True},
    sections={
        "Run methods": ["run", "compare", "plot", "launch", "submit"],
        "Look up and prepare": ["list", "suites", "data", "advise", "predict"],
        "Measure this machine": ["bench", "doctor"],
        "Images": ["images"],
    },
    examples=[
        "mpicomp compare demo --ranks 4                 # twelve methods on real data: table and figure",
        'mpicomp run --problem "logistic(data=digits, lam=1e-3)" --method "ef21(topk(k=1))" --ranks 4',
        "mpicomp launch --ranks 4 train.py              # a program of your own",
    ],
)
@click.version_option(package_name="mpicomp")
def cli() -> None:
    """Distributed optimisation with compressed communication, over real MPI ranks.

    Without --ranks, and outside mpirun, everything runs in one process, with the same bytes and the same
    iterates (but for the last bits with `--server allreduce`).  `mpirun -n 4 mpicomp run ...` computes the
    same as `mpicomp run --ranks 4 ...`.
    """


def complain(show: Any, status: int) -> int:
    # All ranks meet the same error and leave with the same status; rank 0 alone prints it.
    if launched_rank() == 0:
        show()
    return status


def elsewhere(ranks: int | None) -> bool:
    """Whether this process has to start ``ranks`` ranks, because it is not one of them."""
    started = launched_ranks()
    if ranks is None or ranks == started:
        return False
    if started is not None and started > 1:
        raise ConfigError(f"--ranks {ranks}, but the launcher has started {started}. Leave --ranks out.")
    return ranks > 1


def refuse_ranks(command: str) -> None:
    """Raise ``ConfigError`` if a launcher has started several ranks: each would do the whole ``command``."""
    if (started := launched_ranks() or 1) > 1:
        raise ConfigError(
            f"{command} is for one process, which starts ranks where it needs them; the launcher has started "
            f"{started}. Run it without a launcher."
        )


def relaunch(ranks: int | None, survive: bool = False) -> int:
    """Run this command line again, on ``ranks`` ranks."""
    assert ranks is not None
    if sys.stderr.isatty():  # what follows is written over it; see ``clear_start``
        sys.stderr.write(f"starting {ranks} ranks\r")
        sys.stderr.flush()
    return launch(ranks, ["-m", "mpicomp", *sys.argv[1:]], survive)


def clear_start() -> None:
    """On rank 0 under ``relaunch``, clear the line that says that ranks are started."""
    if launched_rank() == 0 and "MPICOMP_TERMINAL" in os.environ:
        sys.stderr.write("\x1b[2K\r")
        sys.stderr.flush()


def watched() -> bool:
    """Whether this rank's standard error ends in a terminal, directly or through mpirun's pipes."""
    return launched_rank() == 0 and (sys.stderr.isatty() or "MPICOMP_TERMINAL" in os.environ)


def on_stderr() -> bool:
    """Whether tables go to standard error: mpirun keeps them after a progress bar only in one stream."""
    return os.environ.get("MPICOMP_TERMINAL") == "both"


def show_tables(*tables: Any) -> None:
    from rich.console import Console

    # mpirun gives rank 0 a terminal of 80 columns, whether its own output goes to one or into a file.
    hidden = launched_by_mpi() and STATUS not in os.environ  # else `launch` knows the terminal
    # In a log or a pipe as wide as a table needs to be; under `launch` COLUMNS says how wide that is.
    width = None if sys.stdout.isatty() and not hidden else 140
    # The height is of no use, but without it rich does not believe the width of a plain terminal.
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        width = int(told)
    console = Console(width=width, height=25, stderr=on_stderr(), force_terminal=False if hidden else None)
    for table in tables:
        console.print(table)
