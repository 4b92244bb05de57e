"""Somebody else's count of the bytes that a rank hands to MPI.

An observer is the MPI library, or sits between us and it, and knows nothing of the ledger.  It counts

* point-to-point messages of this process to each rank, on whatever communicator, except while it is
  told to look away: that is how what a run is measured by is kept out;
* broadcasts of which this process is the root, on the communicator named ``MESSAGES``.

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
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

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

MESSAGES = "mpicomp messages"  # the communicator on which a method's messages travel


class Library(NamedTuple):
    """An MPI library."""

    vendor: str
    major: int
    file: str

    @property
    def has_monitoring(self) -> bool:
        """Whether its own count can be read.

        Open MPI 4 has the component as well, but forgets its variables when it unloads what it wraps.
        """
        return self.vendor == "Open MPI" and self.major >= 5


@dataclass(frozen=True)
class Counted:
    """What one rank has handed to MPI: to each rank, and as the root of broadcasts.

    ``broadcast`` is in bytes to one receiver; every other rank is one.
    """

    bytes: Sequence[int]
    messages: Sequence[int]
    broadcast: int
    broadcasts: int

    def since(self, before: Counted) -> Counted:
        """What came on top of ``before``."""
        return Counted(
            [now - then for now, then in zip(self.bytes, before.bytes, strict=True)],
            [now - then for now, then in zip(self.messages, before.messages, strict=True)],
            self.broadcast - before.broadcast,
            self.broadcasts - before.broadcasts,
        )


class Observer(ABC):
    """Counts from its making on, in this process."""

    name: str

    @abstractmethod
    def counted(self) -> Counted:
        """Everything so far."""

    @abstractmethod
    def look(self, away: bool) -> None:
        """Stop counting messages from point to point, or go on."""

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """Nothing sent from point to point in this block is counted."""
        self.look(away=True)
        try:
            yield
        finally:
            self.look(away=False)

    @abstractmethod
    def close(self) -> None:
        """Give back what the observer holds."""


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
        from mpicomp.transports.monitoring import switch_on

        switch_on()
    else:
        from mpicomp.transports.shim import load

        load(library)
