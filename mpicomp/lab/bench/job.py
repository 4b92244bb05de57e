"""Start a program of a benchmark on several ranks, and read the lines of JSON that its rank 0 prints."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from subprocess import PIPE, Popen
from tempfile import TemporaryFile
from typing import Any

from mpicomp.base.errors import MpicompError
from mpicomp.base.interpreter import interpreter
from mpicomp.lab.bench.hosts import Hosts
from mpicomp.lab.jobs.launcher import find_launcher
from mpicomp.lab.jobs.stderr import ON_THE_END


def rows_of(
    module: str, asked: dict[str, Any], ranks: int, hosts: Hosts | None, what: str
) -> Iterator[dict[str, Any]]:
    """Run ``python -m MODULE ASKED``; yield each JSON object that rank 0 prints, as soon as it does.

    There is one rank on each of ``hosts``; None: all ranks are on this host.  Raises ``MpicompError``, which
    begins with ``what``, if the ranks fail; it ends with the reason that they, or else mpirun, have printed.
    """
    program = interpreter("-m", f"mpicomp.lab.bench.{module}", json.dumps(asked))
    if hosts is None:
        launcher = find_launcher()
        command, environment = launcher.command(ranks, *program), launcher.environment() | os.environ
    else:
        command, environment = [*hosts.mpirun(), *program], hosts.environment()
    with TemporaryFile() as errors:
        with Popen(
            command, env=environment, stdout=PIPE, stderr=errors, text=True, start_new_session=True
        ) as job:
            assert job.stdout is not None
            try:
                yield from (json.loads(line) for line in job.stdout if line.startswith("{"))
            except BaseException:  # an interrupt, or nobody wants further rows
                job.terminate()
                raise
        if job.returncode != 0:
            errors.seek(0)
            text = errors.read()
            said = ON_THE_END.sub(b"", text).strip() or text  # of a rank that was killed mpirun alone tells
            raise MpicompError(f"{what} ended with {job.returncode}.\n{said.decode(errors='replace')}")
