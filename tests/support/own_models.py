"""What the tests of methods with a message to each worker alone share."""

from __future__ import annotations

import mpicomp
from mpicomp.keys import Key
from mpicomp.transports.local import Local


def models(loop, k: int) -> list:
    """The w_i after round k; a worker takes over a model that went to all when the next round begins."""
    if loop.method.scatters(Key(loop.seed, k, None, len(loop.workers))):
        return [w.w for w in loop.workers.values()]
    return [loop.replica.z] * len(loop.workers)


class Hearing(Local):
    """Notes each round's messages to one worker alone, and its broadcast."""

    def __init__(self, n):
        super().__init__(n)
        self.own, self.down = [{}], []

    def scatter(self, make, take):
        def heard(i, message):
            self.own[-1][i] = message.copy()
            take(i, message)

        super().scatter(make, heard)

    def broadcast(self, message):
        self.down.append(len(message))
        self.own.append({})
        return super().broadcast(message)


def heard(method, problem, n, rounds, **options):
    """A run, and what ``Hearing`` noted of it."""
    transport = Hearing(n)
    run = mpicomp.run(method, problem, workers=n, rounds=rounds, every=1, transport=transport, **options)
    return run, transport
