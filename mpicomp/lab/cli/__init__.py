"""The commands.  Each is a thin layer over a function that a script can call as well."""

from __future__ import annotations

import click

from mpicomp.base.errors import MpicompError
from mpicomp.lab.cli import advise, bench, bench_hosts, images, launch, look, predict, suites, work
from mpicomp.lab.cli.root import INTERRUPTED, clear_start, cli, complain
from mpicomp.lab.cli.streams import abandon_stdout, prepare_streams, shorten_warnings
from mpicomp.lab.jobs.launch import leave
from mpicomp.runtime.signals import remember_signals
from mpicomp.transports.launcher import launched_ranks

__all__ = ["advise", "bench", "bench_hosts", "images", "launch", "look", "main", "predict", "suites", "work"]


def main() -> None:
    """Run the command line.  Errors are printed once, by rank 0, without a traceback."""
    remember_signals()
    prepare_streams()
    shorten_warnings()
    clear_start()
    try:
        status = cli.main(prog_name="mpicomp", standalone_mode=False)
    except click.ClickException as error:
        status = complain(error.show, error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except MpicompError as error:
        message = f"mpicomp: {error}"
        status = complain(lambda: click.echo(message, err=True), 1)
    except MemoryError as error:
        if (launched_ranks() or 1) > 1:  # perhaps of this rank alone: the others would wait for it
            raise
        message = f"mpicomp: out of memory. {error}".strip()
        status = complain(lambda: click.echo(message, err=True), 1)
    except OSError as error:
        if error.filename is not None:  # not a stream
            raise
        abandon_stdout()
        message = f"mpicomp: cannot write to standard output: {error.strerror}."
        if isinstance(error, FileNotFoundError):  # of os.getcwd
            message = "mpicomp: the current folder was removed. Change to another one."
        status = complain(lambda: click.echo(message, err=True), 1)
    leave(status if isinstance(status, int) else 0)
