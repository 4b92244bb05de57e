"""A rank whose Abort does not return, and holds the GIL, ends all the same."""

from __future__ import annotations

import subprocess
import sys

STUCK = """
import ctypes, sys

class World:
    def Abort(self, code):
        ctypes.PyDLL(None).sleep(600)  # as Open MPI's may that does not reach the launcher; it keeps the GIL

class MPI:
    COMM_WORLD = World()

sys.modules["mpi4py.MPI"] = MPI
from mpicomp.transports.ending import end_now
end_now()
"""


def test_an_abort_that_does_not_return_ends_the_process():
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr == ""
