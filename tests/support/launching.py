"""Starting real ranks from a test, always with a time limit that only a hang meets."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from mpicomp.base.errors import ConfigError
from mpicomp.lab.jobs.launcher import find_launcher
from mpicomp.transports.counters import find_library
from mpicomp.transports.counters.shim import compiled

TESTS = Path(__file__).parents[1]
LIMIT = 300  # seconds of silence: far above any of these jobs, so that only a hang meets it
TORCHRUN = ("-m", "torch.distributed.run")
may_start_ranks = True  # whether the test under way is marked as a job; tests/conftest.py says so
_FOLDER = TemporaryDirectory()  # for what mpirun keeps by process number, and leaves when it is killed


def _starts_ranks(command: Sequence[str] | str) -> bool:
    """Whether a command is mpirun, torchrun or `mpicomp .. --ranks`, with something to start."""
    words = shlex.split(command) if isinstance(command, str) else [os.fsdecode(word) for word in command]
    launchers = {Path(word).name for word in words} & {"mpirun", "mpiexec", "torchrun", TORCHRUN[-1]}
    return (bool(launchers) and "--version" not in words) or ("--ranks" in words and "submit" not in words)


def _watch(event: str, arguments: tuple) -> None:
    """Refuse ranks to a test that is not marked as a job, whichever way it starts them."""
    if event == "subprocess.Popen" and not may_start_ranks and _starts_ranks(arguments[1]):
        raise AssertionError(f"this test starts ranks: name it in JOBS of tests/marks.py\n{arguments[1]}")


sys.addaudithook(_watch)


def start(ranks: int, *command: str, **environment: str) -> subprocess.Popen[str]:
    """``mpirun -n ranks python COMMAND`` in a process group of its own."""
    launcher = find_launcher()
    return subprocess.Popen(
        [launcher.path, "-n", str(ranks), sys.executable, *command],
        env=launcher.environment() | os.environ | {"TMPDIR": mkdtemp(dir=_FOLDER.name)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(job: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Wait for ``job``; a hang fails the test, and leaves no rank behind.

    A job hangs if it says nothing for ``LIMIT`` seconds.  One that takes long on a busy machine tells, on
    stderr, how far it is.
    """
    said: tuple[bytes | None, bytes | None] = None, None
    while True:
        try:
            out, err = job.communicate(timeout=LIMIT)
            return subprocess.CompletedProcess(job.args, job.returncode, out, err)
        except subprocess.TimeoutExpired as now:
            if (now.output, now.stderr) != said:
                said = now.output, now.stderr
                continue
            os.killpg(job.pid, signal.SIGKILL)
            out, err = job.communicate()
            raise AssertionError(f"the job hung\n{out}\n{err}") from None


def mpirun(ranks: int, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``python COMMAND`` on ``ranks`` ranks to its end."""
    return finish(start(ranks, *command, **environment))


def torchrun(ranks: int, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``python COMMAND`` in ``ranks`` processes that torchrun starts, to its end."""
    options = ["--standalone", f"--nproc-per-node={ranks}"]
    job = subprocess.Popen(
        [sys.executable, *TORCHRUN, *options, *command],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return finish(job)


@cache
def no_counter() -> str | None:
    """Why nobody can count what this MPI is given, or None."""
    library = find_library()
    if library is None:
        return "no MPI can be loaded"
    if library.has_monitoring:
        return None
    try:
        with TemporaryDirectory() as folder:
            compiled(library, Path(folder))
    except ConfigError as error:
        return str(error)
    return None


def mpicomp(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line, as a user starts it."""
    command = [sys.executable, "-m", "mpicomp", *arguments]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=LIMIT
    )
