"""Prints the server's peak of traced allocations in runs with 4, 64 and 256 dense messages a round."""

import json
import tracemalloc
from dataclasses import dataclass

import numpy as np

import mpicomp
from mpicomp.transports.launcher import launched_rank


class Zero(mpicomp.Objective):
    def value(self, x):
        return 0.0

    def grad(self, x):
        return np.zeros_like(x)


@dataclass(frozen=True)
class Flat(mpicomp.Problem):
    def dimension(self):
        return 50_000

    def objective(self, i, n):
        return Zero()


def run(workers):
    # A dedicated server: what workers hold is theirs, and grows with them.
    mpicomp.run(mpicomp.GD(gamma=0.1), Flat(), workers=workers, rounds=3, every=3, server="dedicated")


run(4)  # what the first run loads is not a run's memory
peaks = []
for workers in (4, 64, 256):
    tracemalloc.start()
    run(workers)
    peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
if launched_rank() == 0:
    print(json.dumps(peaks))
