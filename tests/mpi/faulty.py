"""A script in which worker 5 fails in its seventh round: `faulty.py raise|nan|"kill RANK"`."""

import os
import signal
import sys
from dataclasses import dataclass

import mpicomp
from mpicomp import EF21, TopK
from mpicomp.transports import launched_rank

fault, _, rank = sys.argv[1].partition(" ")


class Faulty(mpicomp.Objective):
    def __init__(self, i: int) -> None:
        self.i, self.calls = i, 0

    def value(self, x):
        return float(x @ x) / 2

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
        return Faulty(i)


try:
    mpicomp.run(EF21(TopK(k=3), gamma=0.01), Problem(), workers=8, rounds=1000, every=1000)
except mpicomp.MpicompError as error:
    if launched_rank() == 0:
        print(error, file=sys.stderr)
    sys.exit(1)
