"""A script in which something fails: `faulty.py FAULT [KERNELS]`.  With ``KERNELS``, a library that
``cuda_host.build`` has made, it runs on a CPU that plays the device, and MPI is given the device's buffers.

raise, nan      worker 5's gradient in round 7
kill RANK       that rank, killed
observe, crash  worker 5's value, at the second observation: a user error, or any other exception
leave           rank 1, in good order, while the others go on to a second run that watches for stalls
after           rank 1, once the run is over, while the others begin another
short, long     the message of worker 5 in round 7, on its way: a byte is lost, or one too many
flip AT         that byte of the broadcast of round 7 (-1: the last), as it arrives on rank 1
full FOLDER     the disk under the record, after some rows
shard, x0       worker 5's data, at the start; the starting point, which differs from rank to rank
"""

import os
import resource
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mpi4py import MPI

import mpicomp
from mpicomp import EF21, TopK
from mpicomp.transports.launcher import launched_rank
from mpicomp.transports.mpi import Mpi
from tests.support.cuda_host import Host, play

fault, _, rest = sys.argv[1].partition(" ")


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
        if fault == "kill" and self.calls == 9 and launched_rank() == int(rest):
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


class Garbling(Mpi):
    """Loses the last byte of one message, or adds one."""

    @contextmanager
    def gather(self, senders, take):
        self.rounds = getattr(self, "rounds", -1) + 1
        with super().gather(senders, take) as send:
            yield lambda i, message: send(i, self.garble(i, message))

    def garble(self, i, message):
        if i == 5 and self.rounds == 7 and fault in ("short", "long"):
            message = message[:-1] if fault == "short" else np.concatenate([message, message[:1]])
        return message

    def broadcast(self, message):
        down, stop = super().broadcast(message)
        if fault == "flip" and self.rank == 1 and self.rounds == 7:
            down = down.copy()
            down[int(rest)] ^= 0xFF
        return down, stop


options = {"rounds": 1000, "every": 1000}
if len(sys.argv) > 2:
    play(Host(Path(sys.argv[2])))
    options |= {"device": "cuda", "cuda_aware": "yes"}
if fault in ("short", "long", "flip"):
    options["transport"] = Garbling(8, MPI.COMM_WORLD, cuda_aware="device" in options)
if fault in ("flip", "leave"):
    options["rounds"] = 20
if fault == "full":
    options |= {"out": rest, "every": 10}
    if launched_rank() == 0:  # writing beyond fails with an error, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))

try:
    run = mpicomp.run(EF21(TopK(k=3), gamma=0.01), Problem(), workers=8, **options)
    if fault == "leave":
        if launched_rank() == 1:
            sys.exit(0)
        mpicomp.run(EF21(TopK(k=3), gamma=0.01), Problem(), workers=8, stall_timeout=1)
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
