"""Byte counters: independent counts of the bytes that a rank hands to MPI.

========================  ============================================================================
``monitoring``            from Open MPI 5 on, its own component: no compiler needed
``shim``                  with any other library, a few lines of C in front of MPI's functions (PMPI)
========================  ============================================================================

Both have to be set up before MPI is loaded; ``prepare`` does so.
"""

from __future__ import annotations

import json
import subprocess
import sys

from mpicomp.base.interpreter import interpreter
from mpicomp.transports.counters.base import Library
from mpicomp.transports.counters.monitoring import switch_on
from mpicomp.transports.counters.shim import load_shim

# Says which MPI library mpi4py takes, and in which file it is, without starting it.
_PROBE = """
import ctypes, json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
found = (ctypes.c_void_p * 4)()  # Dl_info; a file's name comes first
function = ctypes.cast(ctypes.CDLL(MPI.__file__).PMPI_Init, ctypes.c_void_p)
ctypes.CDLL(None).dladdr(function, found)
vendor, version = MPI.get_vendor()
print(json.dumps([vendor, version[0], ctypes.string_at(found[0]).decode()]))
"""


def find_library() -> Library | None:
    """The MPI library that mpi4py would load here, or None if it can load none.

    A child process loads the library: once this process had loaded it, no counter could count here.
    """
    probe = subprocess.run(interpreter("-c", _PROBE), capture_output=True, text=True)
    return None if probe.returncode else Library(*json.loads(probe.stdout.splitlines()[-1]))


def prepare() -> None:
    """Set up the byte counter; do nothing if MPI is loaded already.

    Errors are raised later, by the counter's constructor, when all ranks can raise them together.
    """
    library = None if "mpi4py.MPI" in sys.modules else find_library()
    if library is None:
        return
    if library.has_monitoring:
        switch_on()
    else:
        load_shim(library)
