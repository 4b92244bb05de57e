"""Who counts the bytes that a rank hands to MPI, other than we.

========================  ============================================================================
``monitoring``            from Open MPI 5 on, its own component: no compiler needed
``shim``                  with any other library, a few lines of C in front of MPI's functions (PMPI)
========================  ============================================================================

Either has to be in place before MPI is loaded, hence ``prepare``.
"""

from __future__ import annotations

import json
import subprocess
import sys

from mpicomp.transports.observers.base import Library
from mpicomp.transports.observers.monitoring import switch_on
from mpicomp.transports.observers.shim import load

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
    """The library that would be loaded here, or None if none can be.

    Another process finds out: this one could not look and then still put something in front of it.
    """
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True)
    return None if probe.returncode else Library(*json.loads(probe.stdout.splitlines()[-1]))


def prepare() -> None:
    """Put the observer in place, before MPI is loaded; where MPI is, it is too late and nothing happens.

    What goes wrong is told later, when the ranks can agree on it.
    """
    library = None if "mpi4py.MPI" in sys.modules else find_library()
    if library is None:
        return
    if library.has_monitoring:
        switch_on()
    else:
        load(library)
