"""Random kills: `python -m tests.cluster.kills --count 200 --seed 0`.

Each is a job on three ranks of which one is struck: any method, any phase of a round, any round, in any of
the ways of ``tests.support.fault_injection``.  Each has to end, to say why, to lose no finished checkpoint,
and to be resumed to the iterates of the run that nothing happens to.

With `--on-failure shrink` a rank that is no server dies, and the others have to go on without it; with
`--at random` as well, it is killed from outside at a random time (see ``times``).
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import click

from tests.cluster import times
from tests.support.fault_injection import (
    ANY_RANK,
    HOWS,
    METHODS,
    SERVER,
    Strike,
    check,
    check_resumed,
    struck,
)
from tests.support.rank_loss import outlive

RANKS = 3


def draws(count: int, seed: int) -> list[Strike]:
    """The strikes of a seed; a longer list begins with the shorter one."""
    draw = random.Random(seed)
    strikes = []
    for _ in range(count):
        phase = draw.choice(ANY_RANK + SERVER)
        rank = draw.randrange(RANKS)
        strikes.append(
            Strike(
                method=draw.choice([*METHODS.values()]),
                phase=phase,
                how=draw.choice(HOWS),
                rank=0 if phase in SERVER else rank,
                round=draw.randrange(25),
                share=draw.random(),
            )
        )
    return strikes


def ended(strike: Strike, folder: Path) -> float:
    """Strike, and check all that is promised; gives the seconds until the job had ended."""
    outcome = struck(strike, folder, RANKS)
    check(strike, outcome)
    check_resumed(strike, folder)
    return outcome.after


def deaths(count: int, seed: int) -> list[Strike]:
    """Those of the strikes of a seed that kill a rank other than the server, once the run has begun."""
    strikes = (
        s for s in draws(20 * count, seed) if s.how in ("kill", "leave") and s.rank and s.phase != "data"
    )
    return list(islice(strikes, count))


def outlived(strike: Strike, folder: Path) -> float:
    """Strike, and check that the others go on."""
    return outlive(strike, folder, RANKS).after


def kill_at_random_times(kills: list[times.Kill], first: int) -> bool:
    """Count what becomes of the jobs; gives whether there was a defect."""
    seen: dict[str, list[float]] = {}
    for number, kill in enumerate(kills):
        if number < first:
            continue
        with TemporaryDirectory() as folder:
            outcome = times.kill(kill, Path(folder) / "run")
        seen.setdefault(outcome.kind, []).append(outcome.seconds)
        if outcome.kind != times.GONE_ON:
            click.echo(f"{number}: {outcome.kind}: {kill}: {outcome.said}", err=True)
        click.echo(f"{number}: {outcome.kind}, {len(kill.victims)} killed, {outcome.seconds:.2f} s")
    for kind, seconds in seen.items():
        click.echo(
            f"{len(seconds)} {kind}; {median(seconds):.2f} s in the median, {max(seconds):.2f} s at most"
        )
    return bool(seen.keys() & {times.ENDED, times.HUNG, times.WRONG})


@click.command()
@click.option("--count", default=200, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--on-failure", type=click.Choice(["end", "shrink"]), default="end", show_default=True)
@click.option("--at", type=click.Choice(["places", "random"]), default="places", show_default=True)
@click.option("--first", default=0, show_default=True, help="With --at random: leave out those before it.")
def main(count: int, seed: int, on_failure: str, at: str, first: int) -> None:
    if at == "random":
        if on_failure != "shrink":
            raise click.UsageError("--at random is for --on-failure shrink.")
        sys.exit(kill_at_random_times(times.kills(count, seed), first))
    seconds, failed = [], 0
    draw, survive = (draws, ended) if on_failure == "end" else (deaths, outlived)
    strikes = draw(count, seed)
    for number, strike in enumerate(strikes):
        with TemporaryDirectory() as folder:
            try:
                seconds.append(survive(strike, Path(folder) / "run"))
            except AssertionError as error:
                failed += 1
                click.echo(f"{number}: {strike}: {error}", err=True)
    for field in ("phase", "how", "rank"):
        click.echo(json.dumps({field: Counter(getattr(strike, field) for strike in strikes)}))
    click.echo(
        f"{count} kills, {failed} failed; ended within {max(seconds, default=0):.2f} s, "
        f"median {median(seconds or [0]):.2f} s"
    )
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
