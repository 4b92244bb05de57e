"""Jobs of which one rank is struck, and what must be left of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import mpicomp
from mpicomp.base.errors import RecordError
from mpicomp.text.config import parse_method, parse_problem
from tests.support.launching import TESTS, finish
from tests.support.launching import start as mpirun
from tests.support.method_cases import METHOD_CASES

GONE = 60  # seconds: far more than a process takes that has been told to end

# What a rank may be in the middle of; a name with "part" or more in it is that of a file being written.
ANY_RANK = ("data", "gradient", "compress", "replica_step", "observe", "part")
SERVER = ("server", "row", "manifest", "summary")
HOWS = ("raise", "kill", "exit", "leave")  # a bug, SIGKILL, sys.exit(0), os._exit(0)

PROBLEM = "noisy(quadratics(d=24, noise=0.5, lam=0.1), sigma=0.5)"
METHODS = {case.name: case.text for case in METHOD_CASES}
OPTIONS: dict[str, Any] = {"workers": 8, "rounds": 30, "every": 4}
SAVED: dict[str, Any] = {"checkpoint_every": 5}
SHARDED: dict[str, Any] = {"server": "sharded", "blocks": 4}


@dataclass(frozen=True)
class Strike:
    """``rank`` comes to grief, ``how`` in the middle of ``phase``, in ``round`` or soon after.

    ``sharded``: in a run that all ranks serve.
    """

    method: str
    phase: str
    how: str
    rank: int
    round: int
    share: float = 0.5  # of a file that is written, before the rank is struck
    sharded: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The options of the run that is struck."""
        return OPTIONS | SAVED | (SHARDED if self.sharded else {})


@dataclass(frozen=True)
class Outcome:
    """How a struck job ended: its exit status, what it said, and how long after the strike, in seconds."""

    status: int
    said: str
    after: float


def struck(
    strike: Strike,
    folder: Path,
    ranks: int = 3,
    launched: bool = False,
    stall_timeout: float | None = None,
    on_failure: str = "end",
) -> Outcome:
    """Run the job into ``folder``, by mpirun or `mpicomp launch`; a hang, or a process left, is a failure."""
    options = strike.options | {"stall_timeout": stall_timeout, "on_failure": on_failure}
    asked = json.dumps(asdict(strike) | {"folder": str(folder), "problem": PROBLEM, "options": options})
    script = str(TESTS / "mpi" / "struck.py")
    launcher = partial(launch, on_failure) if launched else start
    done = finish(launcher(ranks, script, asked, PYTHONPATH=str(TESTS.parent)))
    ended = time.time()
    expect_gone(str(folder))
    time_struck = Path(f"{folder}.struck")
    assert time_struck.exists(), f"nobody was struck\n{done.stderr}"
    return Outcome(done.returncode, done.stderr + done.stdout, ended - float(time_struck.read_text()))


def start(ranks: int, *command: str, **environment: str) -> subprocess.Popen[str]:
    """mpirun, as the command line starts it."""
    return mpirun(ranks, "-m", "mpi4py", *command, **environment)


def launch(on_failure: str, ranks: int, *command: str, **environment: str) -> subprocess.Popen[str]:
    """`mpicomp launch`."""
    return started("launch", "--ranks", str(ranks), "--on-failure", on_failure, *command, **environment)


def started(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """The command line, under way."""
    return subprocess.Popen(
        [sys.executable, "-m", "mpicomp", *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def alive(word: str) -> list[int]:
    """The processes but this one that have ``word`` in their command; a job has its folder there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()  # empty for a zombie
        except OSError:
            continue
        if word.encode() in command and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


def expect_gone(word: str) -> None:
    """Fail if some process of the job goes on; and end it."""
    deadline = time.monotonic() + GONE
    while left := alive(word):
        if time.monotonic() > deadline:
            for process in left:
                os.kill(process, signal.SIGKILL)
            raise AssertionError(f"processes {left} of the job are left")
        time.sleep(0.02)


def check(strike: Strike, outcome: Outcome) -> None:
    """Assert that the job has failed and said once why: by a traceback, or by the rank that is gone."""
    assert outcome.status != 0, outcome.said
    text = {"raise": "ZeroDivisionError: struck", "exit": "SystemExit: 0"}.get(strike.how)
    if text is not None:
        assert outcome.said.count(text) == 1, outcome.said
        assert f"mpicomp: rank {strike.rank} failed" in outcome.said
    else:
        # Open MPI names the rank; MPICH the process and the host, on standard output, but not after status 0.
        said = rf"rank {strike.rank}\b|PID \d+ RUNNING AT|a rank left the job before its end"
        assert re.search(said, outcome.said), outcome.said


def check_resumed(strike: Strike, folder: Path) -> None:
    """Assert that no finished checkpoint is lost, and that the resumed run is the one never struck."""
    saved = Path(f"{folder}.saved")
    rounds = [int(line) for line in saved.read_text().split()] if saved.exists() else []
    first: list[int] = []
    method, problem, options = parse_method(strike.method), parse_problem(PROBLEM), strike.options
    resume = bool(list(folder.glob("checkpoint/round-*/manifest.json")))
    if not resume:  # struck before the first checkpoint was there
        assert not rounds
        if not (folder / "run.json").exists():
            return
        try:
            mpicomp.run(method, problem, out=folder, resume=True, **options)
        except RecordError as error:
            assert "no checkpoint" in str(error)
            return
        raise AssertionError("resumed from nothing")
    again = mpicomp.run(
        method, problem, out=folder, resume=True, progress=lambda k, row: first.append(k), **options
    )
    begun = first[0] - 1 if first else again.rows[-1].round
    assert begun >= max(rounds, default=0), f"checkpoint {max(rounds)} is lost: resumed from {begun}"
    assert again.iterates_sha256 == whole(strike.method, strike.sharded)


@cache
def whole(method: str, sharded: bool) -> str:
    """The hash over all iterates of the run that nothing happens to."""
    options = OPTIONS | (SHARDED if sharded else {})
    return mpicomp.run(parse_method(method), parse_problem(PROBLEM), **options).iterates_sha256
