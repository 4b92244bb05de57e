"""A script that loses rank 1 in its first run, which goes on without it, and then asks for another run.

`outlived.py MET`: rank 2 meets what does not speak of a death, as comes of Open MPI's collective operations
when they lose a rank under way: an error of theirs ("other"), or bytes that nobody sent, in a broadcast
("garbled") or read already ("bytes").  `outlived.py garbled alone`: and rank 1 lives.
"""

from __future__ import annotations

import os
import signal
import sys
from pickle import UnpicklingError

from mpi4py import MPI

import mpicomp
from mpicomp import GD
from mpicomp.base.errors import ConfigError
from mpicomp.problems import Quadratics
from mpicomp.runtime.loop import Loop
from mpicomp.transports.launcher import launched_rank

step = Loop.step
errors = {"other": MPI.Exception(MPI.ERR_OTHER), "bytes": UnpicklingError("invalid load key")}
asked = set(sys.argv[1:])


class Garbling(MPI.Intracomm):
    """Gives other bytes in a broadcast of round 5 than were sent, and no error."""

    def Bcast(self, buf, root=0):
        super().Bcast(buf, root)
        if "garbled" in asked:
            buf[0][0] ^= 1


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def step_or_die(self, k):
    if k == 5 and launched_rank() == 1 and "alone" not in asked:
        if "garbled" not in asked:
            die()
        self.transport.broadcast = (
            die  # its message has been sent, so that the server goes on to the broadcast
        )
    if k == 5 and launched_rank() == 2:
        for name in asked & errors.keys():
            asked.remove(name)
            raise errors[name]
        self.transport.messages = Garbling(self.transport.messages)
    try:
        return step(self, k)
    finally:
        if k == 5:
            asked.discard("garbled")


Loop.step = step_or_die


def run():
    return mpicomp.run(GD(gamma=0.1), Quadratics(d=20), workers=6, rounds=20, on_failure="shrink")


rounds = run().rows[-1].round
try:
    run()
except ConfigError as error:
    if launched_rank() == 0:
        print(f"{rounds} rounds. {error}")
