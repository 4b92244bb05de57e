"""The interface of averaging: how the workers' messages of a round become a broadcast that every rank has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from mpicomp.averaging.books import Books
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError, MessageError, MpicompError
from mpicomp.keys import Key
from mpicomp.methods.base import Accumulator, Method

WorkerStep = Callable[[int], Any]  # a hosted worker's number -> its message, a record ``Up``
Receive = Callable[[int, Bytes], None]  # a hosted worker's number, and the server's message to it alone


class Averaging(ABC):
    """How messages are averaged: by rank 0, by every rank for its blocks, or by MPI_Allreduce.

    The methods of this class are collective: all ranks call them.
    """

    def __init__(self, books: Books) -> None:
        self.books, self.method, self.transport = books, books.method, books.transport

    @abstractmethod
    def begin(self, x: Array) -> None:
        """Start the server's state at x, shape (d,)."""

    @abstractmethod
    def play(
        self, step: WorkerStep, receive: Receive, senders: Sequence[int], replica: Any, key: Key
    ) -> tuple[Any, int, bool]:
        """Average the messages of the round of ``key``.

        step     called with a hosted worker's number; makes its message
        receive  called with each hosted worker's number and the message to it alone, if the method scatters
        senders  the workers that take part, the same on all ranks
        replica  the method's record that all ranks hold alike

        Returns the broadcast, in the form that ``decode`` takes, its length in bytes, and whether some rank
        has asked to stop.  Raises a rank's ``MpicompError`` on all ranks.
        """

    @abstractmethod
    def decode(self, broadcast: Any) -> Any:
        """Decode a broadcast into the method's record ``Down``.  Raises ``MessageError`` if it is invalid."""

    @abstractmethod
    def states(self) -> dict[str, Any]:
        """The server's records that this rank saves in a checkpoint, by name."""

    @abstractmethod
    def model(self, name: str) -> Array | None:
        """The server's vector ``name``, shape (d,), on the server; None elsewhere."""

    def unsettled(self) -> dict[str, Any]:
        """The bytes that this rank has counted since the last ``settle``: a ``Ledger`` by name, or {}."""
        return {}

    def settle(self) -> None:  # noqa: B027 (by default the server has counted all)
        """Add to the server's ledger the bytes that only the other ranks have counted so far."""

    def booked(self) -> tuple[list[int], int] | None:
        """(bytes that this rank has sent to each rank, bytes that it has passed to MPI_Allreduce).

        None if they follow from the ledger.
        """
        return None

    def hosted(self, senders: Sequence[int]) -> list[int]:
        """The workers of ``senders`` that this rank hosts."""
        return [i for i in senders if i in self.transport.hosted]


def begun(method: Method, server: Any, replica: Any, key: Key) -> Accumulator:
    """Begin the method's server step of the round of ``key``; workers' messages are pushed into the result.

    Raises ``ConfigError`` if ``method.server_step`` returns no ``Accumulator``.
    """
    server_step = method.server_step(server, replica, key)
    if not isinstance(server_step, Accumulator):
        raise ConfigError(
            f"{type(method).__name__}.server_step returned a {type(server_step).__name__}; expected an "
            "Accumulator, which takes each worker's message and closes with the broadcast (docs/own.md)."
        )
    return server_step


def first_error(server_step: Accumulator | None, error: MpicompError) -> MpicompError:
    """The error to raise: an earlier bad message still held in ``server_step`` comes before ``error``."""
    if server_step is not None:
        try:
            server_step.flush()
        except MessageError as earlier:
            return earlier
    return error
