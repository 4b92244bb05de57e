"""A script that loses rank 1 in its first run, which goes on without it, and then asks for another run."""

from __future__ import annotations

import os
import signal

import mpicomp
from mpicomp import GD
from mpicomp.errors import ConfigError
from mpicomp.loop import Loop
from mpicomp.problems import Quadratics
from mpicomp.transports import launched_rank

step = Loop.step


def step_or_die(self, k):
    if k == 5 and launched_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, k)


Loop.step = step_or_die


def run():
    return mpicomp.run(GD(gamma=0.1), Quadratics(d=20), workers=6, rounds=20, on_failure="shrink")


rounds = run().rows[-1].round
try:
    run()
except ConfigError as error:
    if launched_rank() == 0:
        print(f"{rounds} rounds. {error}")
