"""Somebody else's count of the bytes that a rank hands to MPI.

An observer is the MPI library, or sits between us and it, and knows nothing of the ledger.  It counts

* point-to-point messages of this process to each rank, on whatever communicator, except while it is
  told to look away: that is how what a run is measured by is kept out;
* broadcasts of which this process is the root, on the communicator named ``MESSAGES``.

========================  ============================================================================
``monitoring``            Open MPI's own component, read through the tools interface: no compiler needed
``shim``                  for any other library: a few lines of C in front of MPI's functions (PMPI)
========================  ============================================================================

Either has to be in place before MPI is loaded, hence ``prepare``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

MESSAGES = "mpicomp messages"  # the communicator on which a method's messages travel


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


def prepare() -> None:
    """Put the observers in place, before MPI is loaded; where they already are, nothing happens.

    What goes wrong is told later, by the one that is needed: only then can the ranks agree on it.
    """
    from mpicomp.transports import monitoring, shim

    monitoring.switch_on()  # other libraries do not mind
    if "PMI_RANK" in os.environ:  # as Open MPI's mpirun does not say
        shim.load()
