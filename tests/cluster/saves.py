"""Kills in saves of several ranks: `python -m tests.cluster.saves --count 200 --seed 0`, as root.

Two ranks save one state after the other: of the same round, of the next, and on a disk that is full, which
fails.  One of them is killed by SIGKILL at a random time, nearly always in a save.  The next job has to load
the state that was saved last, whole, or the one that was being saved; and goes on from it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
from numpy.typing import NDArray

RANKS = 2


@dataclass
class Mark:
    """The number of a save, many times over."""

    number: int = 0
    values: NDArray[np.float64] = field(default_factory=lambda: np.zeros(300))


def job(disk: Path, log: Path, seed: int) -> None:
    """Load and check what there is; then save until somebody ends it."""
    from mpi4py.MPI import COMM_WORLD as world

    from mpicomp import EF21, Aggregator, TopK
    from mpicomp.base.errors import RecordError

    def tell(text: str) -> None:
        if world.rank == 0:
            with open(log, "a") as file:
                file.write(f"{text}\n")

    ballast, folder, own = disk / "ballast", disk / "state", f"mark-{world.rank}"
    agg, mark, draw = Aggregator(EF21(TopK(k=2)), np.zeros(8), workers=RANKS), Mark(), random.Random(seed)
    if world.rank == 0:
        ballast.unlink(missing_ok=True)
    before = world.bcast(lines(log))
    if any(line.startswith("saved") for line in before):
        agg.load(folder, **{own: mark})
    (found,) = {*world.allgather((mark.number, agg.rounds)), *((int(v), agg.rounds) for v in mark.values)}
    tell(f"loaded {found[0]}")
    pids = world.allgather(os.getpid())
    tell("pids " + " ".join(map(str, pids)))
    number = max((int(line.split()[1]) for line in before if line.startswith("begun")), default=0)
    while True:
        number += 1
        kind = draw.choice(["same", "next", "full"])
        if kind == "next":
            agg({world.rank: np.full(8, float(number))})
        if kind == "full" and world.rank == 0:
            fill(ballast)
        tell(f"begun {number} {kind}")
        try:
            agg.save(folder, **{own: Mark(number, np.full(300, float(number)))})
            tell(f"saved {number}")
        except RecordError as error:
            assert kind == "full" and "No space left" in str(error), error
            tell(f"failed {number}")
        if world.rank == 0:
            ballast.unlink(missing_ok=True)
        world.barrier()


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def fill(ballast: Path) -> None:
    """Write until the disk is full."""
    with suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def last(said: list[str], words: str | tuple[str, ...]) -> int:
    """The number in the last line that begins with one of ``words``, or 0."""
    return next((int(line.split()[1]) for line in reversed(said) if line.startswith(words)), 0)


def killed(disk: Path, log: Path, draw: random.Random) -> str:
    """Start a job and kill one of its ranks; gives what it was doing.  Raises ``AssertionError``."""
    from tests.support.launching import start

    before = lines(log)
    command = ("-m", "tests.cluster.saves", "--job", str(disk), str(log), str(draw.randrange(2**31)))
    running = start(RANKS, *command)
    while not any(line.startswith("begun") for line in lines(log)[len(before) :]):
        assert running.poll() is None, running.communicate()
        time.sleep(0.01)
    now = lines(log)[len(before) :]
    loaded, sound, begun = last(now, "loaded"), last(before, ("saved", "loaded")), last(before, "begun")
    assert loaded in (sound, begun), f"loaded {loaded}; saved or loaded before {sound}, begun {begun}"
    time.sleep(draw.uniform(0, 0.5))
    pids = next(line for line in now if line.startswith("pids")).split()[1:]
    os.kill(int(draw.choice(pids)), signal.SIGKILL)
    running.communicate(timeout=100)
    said = lines(log)
    while said[-1].split()[0] not in ("begun", "saved", "failed"):
        said.pop()
    word, _, *kind = said[-1].split()
    return f"in a save, {kind[0]}" if word == "begun" else "between saves"


def kills(count: int, seed: int) -> tuple[Counter[str], Counter[str]]:
    """What the jobs were doing when they were killed, and how often each word is in their log."""
    draw, seen = random.Random(seed), Counter[str]()
    with TemporaryDirectory() as place:
        disk, log = Path(place) / "disk", Path(place) / "log"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], check=True)
        try:
            for number in range(count):
                seen[killed(disk, log, draw)] += 1
                if number % 20 == 19:
                    click.echo(f"{number + 1}: {dict(seen)}")
        finally:
            subprocess.run(["umount", str(disk)], check=True)
        return seen, Counter(line.split()[0] for line in lines(log))


@click.command()
@click.option("--count", default=200, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--job", "its", nargs=3, hidden=True)
def main(count: int, seed: int, its: tuple[str, str, str] | None) -> None:
    if its:
        return job(Path(its[0]), Path(its[1]), int(its[2]))
    seen, words = kills(count, seed)
    click.echo(
        f"{count} kills, no state lost: {dict(seen)}; {words['saved']} saves, {words['failed']} failed"
    )


if __name__ == "__main__":
    main()
