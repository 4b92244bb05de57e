"""A run whose server stops in round 5, on a machine so busy that it takes seconds to end the job."""

from __future__ import annotations

import os
import signal
import time

import mpicomp
from mpicomp import GD
from mpicomp.problems import Quadratics
from mpicomp.runtime.loop import Loop
from mpicomp.transports import mpi
from mpicomp.transports.launcher import launched_rank

step, end_now = Loop.step, mpi.end_now


def step_or_stop(self, k):
    if k == 5 and launched_rank() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    return step(self, k)


def end_late():
    time.sleep(3)
    end_now()


Loop.step, mpi.end_now = step_or_stop, end_late
mpicomp.run(GD(gamma=0.1), Quadratics(d=20), workers=4, rounds=20, stall_timeout=3)
