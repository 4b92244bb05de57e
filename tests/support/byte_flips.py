"""Messages of which a byte is wrong: `python -m tests.support.byte_flips --each 14 --seed 1`.

A format refuses what cannot be one of its messages.  Else the run goes on with what it decoded, and may
diverge.  Whatever comes, it is an ``MpicompError`` or a result.
"""

from __future__ import annotations

import random
from collections import Counter

import click

import mpicomp
from mpicomp.transports.local import Local
from tests.support.every_combination import PROBLEM, ROUNDS, WORKERS, every_pair


class Flipping(Local):
    """Changes one byte of one message, chosen by ``draw``, on its way up or down."""

    def __init__(self, n: int, draw: random.Random) -> None:
        super().__init__(n)
        self.draw, self.up = draw, draw.random() < 0.6
        self.left = draw.randrange(n * ROUNDS // 2 if self.up else ROUNDS)  # messages before that one

    def flip(self, message):
        """The message, or if it is the chosen one a copy with another byte."""
        self.left -= 1
        if self.left != -1 or len(message) == 0:
            return message
        message = message.copy()
        # The first bytes are often counts and lengths: half of the time it is one of them.
        within = min(4, len(message)) if self.draw.random() < 0.5 else len(message)
        message[self.draw.randrange(within)] ^= self.draw.randrange(1, 256)
        return message

    def gather(self, senders, take):
        return super().gather(senders, lambda i, m: take(i, self.flip(m) if self.up else m))

    def scatter(self, make, take):
        super().scatter(make, lambda i, m: take(i, m if self.up else self.flip(m)))

    def broadcast(self, message):
        return super().broadcast(message if self.up else self.flip(message))


def outcome(method: mpicomp.Method, draw: random.Random) -> str:
    """How a run with one wrong byte ends; what is no ``MpicompError`` is raised."""
    transport = Flipping(WORKERS, draw)
    try:
        mpicomp.run(method, PROBLEM, workers=WORKERS, rounds=ROUNDS, every=2, transport=transport)
    except mpicomp.MpicompError as error:
        assert str(error)
        return "diverged" if isinstance(error, mpicomp.base.errors.DivergedError) else "refused"
    return "went on"


@click.command()
@click.option("--each", default=14, show_default=True, help="Runs with each method.")
@click.option("--seed", default=0, show_default=True)
def main(each: int, seed: int) -> None:
    """Run each method ``each`` times, and print how often the runs went on, diverged and were refused."""
    draw = random.Random(seed)
    seen = Counter(outcome(method, draw) for method in every_pair() for _ in range(each))
    print(f"{seen.total()} runs, each with one wrong byte: {dict(seen)}")


if __name__ == "__main__":
    main()
