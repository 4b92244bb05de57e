"""Prints the server's peak of traced allocations in a run with WORKERS dense messages a round."""

import sys
import tracemalloc
from dataclasses import dataclass

import numpy as np

import mpicomp
from mpicomp.transports import launched_rank


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


tracemalloc.start()
# A dedicated server: what workers hold is theirs, and grows with them.
mpicomp.run(mpicomp.GD(gamma=0.1), Flat(), workers=int(sys.argv[1]), rounds=3, every=3, dedicated=True)
if launched_rank() == 0:
    print(tracemalloc.get_traced_memory()[1])
