"""An independent count of the bytes that a rank hands to MPI.

A counter is part of the MPI library, or sits between mpicomp and it, and knows nothing of the ledger.
It counts

* point-to-point messages of this process to each rank, on any communicator, except while it is
  paused: measurements of a run are not counted;
* broadcasts of which this process is the root, and vectors that all ranks sum (MPI_Allreduce), on the
  communicator named ``MESSAGES``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

MESSAGES = "mpicomp messages"  # the communicator on which a method's messages travel


class Library(NamedTuple):
    """An MPI library: its vendor, its major version, and the path of its file."""

    vendor: str
    major: int
    file: str

    @property
    def has_monitoring(self) -> bool:
        """Whether the library's own count can be read: Open MPI 5 or later.

        Open MPI 4 has the monitoring component as well, but loses its variables when it unloads the
        components that monitoring wraps.
        """
        return self.vendor == "Open MPI" and self.major >= 5


@dataclass(frozen=True)
class Counted:
    """The bytes that one rank has handed to MPI: to each rank, as the root of broadcasts, and to be summed.

    bytes       bytes sent to each rank, point to point, and ``messages`` their number
    broadcast   bytes of broadcasts with this rank as root, each counted for one receiver; ``broadcasts``
                their number
    summed      bytes passed to MPI_Allreduce, and ``sums`` the number of calls.  How often these bytes cross
                between ranks is the library's choice
    """

    bytes: Sequence[int]
    messages: Sequence[int]
    broadcast: int
    broadcasts: int
    summed: int = 0
    sums: int = 0

    def since(self, before: Counted) -> Counted:
        """The counts since ``before``: differences, element by element."""
        return Counted(
            [now - then for now, then in zip(self.bytes, before.bytes, strict=True)],
            [now - then for now, then in zip(self.messages, before.messages, strict=True)],
            self.broadcast - before.broadcast,
            self.broadcasts - before.broadcasts,
            self.summed - before.summed,
            self.sums - before.sums,
        )


class ByteCounter(ABC):
    """Counts the bytes that this process sends, from the counter's construction on."""

    name: str

    @abstractmethod
    def counted(self) -> Counted:
        """The counts since construction."""

    @abstractmethod
    def set_paused(self, paused: bool) -> None:
        """Stop counting point-to-point messages, or go on counting them."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Point-to-point messages sent inside this block are not counted."""
        self.set_paused(True)
        try:
            yield
        finally:
            self.set_paused(False)

    @abstractmethod
    def close(self) -> None:
        """Release the counter's resources."""
