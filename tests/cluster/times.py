"""Ranks killed from outside, at random times, of jobs that are to go on without them.

`python -m tests.cluster.kills --at random --on-failure shrink` draws the kills and counts what becomes of the
jobs.  The times are told in rounds, of which a busy machine does fewer in a second.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import deque
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import mpicomp
from mpicomp.text.config import parse_method, parse_problem
from tests.support.fault_injection import METHODS, alive, expect_gone, started
from tests.support.launching import LIMIT, finish
from tests.support.rank_loss import Losing

ROUNDS, EVERY = 100, 4
WINDOW = 60  # rounds in which ranks are killed
DIMENSIONS = (24, 2000, 8000)  # whose messages MPI sends at once, or in pieces

GONE_ON, LATE, ABORTED = "gone on", "killed after the last row", "ended by Open MPI"
ENDED, HUNG, WRONG = "ended by us", "hung", "wrong"  # defects


@dataclass(frozen=True)
class Kill:
    """``ranks`` ranks run ``method``; ``victims`` are killed, each so many rounds after the first."""

    ranks: int
    workers: int
    method: str
    d: int
    victims: dict[int, float]

    @property
    def problem(self) -> str:
        quadratics = f"quadratics(d={self.d}, noise=0.5, lam=0.1)"
        return f"noisy({quadratics}, sigma=0.5)" if "batch" in self.method else quadratics


@dataclass(frozen=True)
class Outcome:
    """What became of the job, the seconds from the kill to its end, and what tells more."""

    kind: str
    seconds: float
    said: str = ""


def kills(count: int, seed: int) -> list[Kill]:
    """The kills of a seed; a longer list begins with the shorter one.  In every fifth, two ranks die."""
    draw = random.Random(seed)
    drawn = []
    for number in range(count):
        ranks, method, when = draw.choice((3, 4)), draw.choice([*METHODS.values()]), WINDOW * draw.random()
        method = method.replace("r=3", "r=0.5")  # clients of a round: 3 may be more than are left
        d = 24 if "importance" in method else draw.choice(DIMENSIONS)
        first, second = draw.sample(range(1, ranks), 2)
        apart = draw.choice((0, 10)) * draw.random()
        victims = {first: when} | ({second: when + apart} if number % 5 == 4 else {})
        drawn.append(Kill(ranks, draw.choice((ranks, 8)), method, d, victims))
    return drawn


def kill(plan: Kill, folder: Path) -> Outcome:
    """Run the job into ``folder``, and kill."""
    arguments = ["run", "--problem", plan.problem, "--method", plan.method, "--workers", str(plan.workers)]
    arguments += ["--rounds", str(ROUNDS), "--every", str(EVERY)]
    arguments += ["--checkpoint-every", "40", "--out", str(folder), "--json"]
    arguments += ["--ranks", str(plan.ranks), "--on-failure", "shrink"]
    job = started(*arguments)
    try:
        victims = _struck(job, plan, folder)
        killed = time.monotonic()
        done = finish(job)
    except AssertionError as hung:
        for process in alive(str(folder)):
            os.kill(process, signal.SIGKILL)
        return Outcome(HUNG, LIMIT, str(hung))
    seconds = time.monotonic() - killed
    try:
        expect_gone(str(folder))
    except AssertionError as left:
        return Outcome(WRONG, seconds, str(left))
    said = done.stderr + done.stdout
    if done.returncode == 0:
        return _compared(plan, victims, json.loads((folder / "summary.json").read_text()), seconds)
    if _rounds(folder) == ROUNDS:
        return Outcome(LATE, seconds)
    ours = "The job ends" in said or "Traceback" in said
    return Outcome(ENDED if ours else ABORTED, seconds, f"status {done.returncode}\n{said}")


def _struck(job: subprocess.Popen[str], plan: Kill, folder: Path) -> list[int]:
    """Kill; gives the ranks that were there to be killed."""
    deadline = time.monotonic() + LIMIT
    seen, processes, struck = [(-1, 0.0)], dict[int, int](), list[int]()
    waiting = deque(sorted(plan.victims.items(), key=lambda victim: victim[1]))
    while waiting and job.poll() is None:
        assert time.monotonic() < deadline, "its rounds do not come"
        if (rounds := _rounds(folder)) > seen[-1][0]:
            seen.append((rounds, time.monotonic()))
            processes = processes or _processes(str(folder))
        rank, when = waiting[0]
        if len(seen) < 2 or seen[-1][0] + EVERY < when:
            time.sleep(0.001)
            continue
        (before, then), (rounds, now) = seen[-2:]
        pace = (now - then) / (rounds - before) if before >= 0 else 0.001
        time.sleep(max(now + pace * (when - rounds) - time.monotonic(), 0.0))
        while waiting and waiting[0][1] == when:
            rank, _ = waiting.popleft()
            if rank in processes and Path(f"/proc/{processes[rank]}").exists():
                os.kill(processes[rank], signal.SIGKILL)
                struck.append(rank)
    return struck


def _rounds(folder: Path) -> int:
    """How many rounds the last row of the run tells of; -1 without a row."""
    with suppress(OSError, ValueError, IndexError):
        return int((folder / "rows.csv").read_text().rstrip("\n").splitlines()[-1].split(",")[0])
    return -1


def _processes(word: str) -> dict[int, int]:
    """The process of each rank of the job with ``word`` in its command."""
    found = {}
    for process in alive(word):
        try:
            words = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in words:
            name, _, value = variable.partition(b"=")
            if name == b"OMPI_COMM_WORLD_RANK":
                found[int(value)] = process
    return found


def _compared(plan: Kill, victims: list[int], summary: dict[str, Any], seconds: float) -> Outcome:
    """What became of a job with a result, which has to be that of one process with the same losses."""
    lost = [one["rank"] for one in summary["lost"]]
    losses: dict[int, list[int]] = {}
    for one in summary["lost"]:
        losses.setdefault(one["round"], []).extend(one["workers"])
    with redirect_stderr(StringIO()):  # it says that ranks have died
        same = mpicomp.run(
            parse_method(plan.method),
            parse_problem(plan.problem),
            workers=plan.workers,
            rounds=ROUNDS,
            every=ROUNDS,
            transport=Losing(plan.workers, losses),
        )
    if set(lost) - set(victims) or same.iterates_sha256 != summary["iterates_sha256"]:
        return Outcome(WRONG, seconds, f"killed {victims}: {summary['lost']}")
    return Outcome(GONE_ON if set(lost) == set(plan.victims) else LATE, seconds)
