"""A script in which something fails: `faulty.py FAULT`.

raise, nan      worker 5's gradient in round 7
kill RANK       that rank, killed
observe, crash  worker 5's value, at the second observation: a user error, or any other exception
after           rank 1, once the run is over, while the others begin another
shard, x0       worker 5's data, at the start; the starting point, which differs from rank to rank
"""

import os
import signal
import sys
from dataclasses import dataclass

import numpy as np

import mpicomp
from mpicomp import EF21, TopK
from mpicomp.transports import launched_rank

fault, _, rank = sys.argv[1].partition(" ")


class Faulty(mpicomp.Objective):
    def __init__(self, i: int) -> None:
        self.i, self.calls = i, 0

    def value(self, x):
        if self.i == 5 and x.any() and fault == "observe":
            raise mpicomp.MpicompError("worker 5 has no value here")
        if self.i == 5 and x.any() and fault == "crash":
            raise ZeroDivisionError("worker 5 has no value here")
        return float(np.sum(x * x)) / 2

    def grad(self, x):
        self.calls += 1
        if self.i == 5 and self.calls == 9:  # one call is the observation of round 0
            if fault == "raise":
                raise ZeroDivisionError("worker 5 in its round 7")
            if fault == "nan":
                return x * float("nan")
        if fault == "kill" and self.calls == 9 and launched_rank() == int(rank):
            os.kill(os.getpid(), signal.SIGKILL)
        return x - self.i


@dataclass(frozen=True)
class Problem(mpicomp.Problem):
    def dimension(self):
        return 20

    def objective(self, i, n):
        if i == 5 and fault == "shard":
            raise mpicomp.MpicompError("worker 5 has no data")
        return Faulty(i)

    def x0(self):
        return np.full(20, float(launched_rank())) if fault == "x0" else np.zeros(20)


try:
    run = mpicomp.run(EF21(TopK(k=3), gamma=0.01), Problem(), workers=8, rounds=1000, every=1000)
    if fault == "after":
        if launched_rank() == 1:
            raise ZeroDivisionError("rank 1 on its own")
        mpicomp.run(EF21(TopK(k=3), gamma=0.01), Problem(), workers=8, rounds=1000)
    if launched_rank() == 0:
        print(run.rows[0].f)
except mpicomp.MpicompError as error:
    if launched_rank() == 0:
        print(error, file=sys.stderr)
    sys.exit(1)
