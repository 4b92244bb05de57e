"""`noisy.py LINES`: each rank prints so many lines of 100 letters on standard error, and then on output."""

from __future__ import annotations

import sys

from mpi4py import MPI

for stream in (sys.stderr, sys.stdout):
    for _ in range(int(sys.argv[1])):
        stream.write("x" * 100 + "\n")
MPI.COMM_WORLD.Barrier()
