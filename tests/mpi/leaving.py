"""Ranks that say that the job is over, and do not end: their files in shared memory are printed before."""

from __future__ import annotations

import os
import signal

from mpi4py import MPI

from mpicomp.transports.launcher import note_status
from mpicomp.transports.orphan import segments

MPI.COMM_WORLD.Barrier()
found = MPI.COMM_WORLD.gather(segments(os.getpid()))
if found is not None:
    print(*sorted({str(file) for files in found for file in files}), flush=True)
MPI.COMM_WORLD.Barrier()
note_status(0)
os.kill(os.getpid(), signal.SIGSTOP)
