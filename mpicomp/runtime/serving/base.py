"""The interface of serving: how the workers' messages of a round become a broadcast that every rank has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Method

if TYPE_CHECKING:
    from mpicomp.runtime.rounds import Rounds

Uplink = Iterator[tuple[int, Any]]  # (worker, its record ``Up``), each computed when it is asked for


class Serving(ABC):
    """The ranks that average.

    running  the method as workers run it, and as every rank follows it

    Methods are collective: all ranks call them.
    """

    running: Method

    @abstractmethod
    def begin(self, x: Array) -> None:
        """Start the server's state at x, shape (d,)."""

    @abstractmethod
    def play(self, at: Rounds, uplink: Uplink, senders: Sequence[int], key: Key) -> tuple[Any, int, bool]:
        """The broadcast of the round of ``key``, in the form that ``decode`` takes.

        Also its length in bytes, and whether some rank has asked to stop.  ``uplink`` has the workers hosted
        here.  Raises a rank's ``MpicompError`` on all ranks.
        """

    @abstractmethod
    def decode(self, broadcast: Any) -> Any:
        """The record ``Down``.  Raises ``MessageError``."""

    @abstractmethod
    def states(self) -> dict[str, Any]:
        """The server's records that this rank answers for in a checkpoint, by name."""

    @abstractmethod
    def model(self, name: str) -> Array | None:
        """The server's vector ``name``, shape (d,), on the server; None elsewhere."""

    def unsettled(self) -> dict[str, Any]:
        """Records of what this rank has counted since ``settle``, by name."""
        return {}

    def settle(self, at: Rounds) -> None:
        """Enter in the server's ledger what only other ranks have counted so far."""
        del at  # by default the server has counted all

    def booked(self) -> tuple[list[int], int] | None:
        """The bytes that this rank has sent to each rank, and those that it has handed to sums of all ranks.

        None if they follow from the ledger.
        """
        return None
