"""The interface of transports.  A transport moves bytes between n workers and a server; it knows no method.

Every operation is collective: all ranks call it, in the same order.  Errors are collective too: one that a
rank meets inside ``gather``, ``raise_on_all`` or ``ask_server`` is raised on all ranks, after ``gather`` by
the ``broadcast``.  So a run ends everywhere at the same point, and the error can be reported once.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.bits import Bytes
from mpicomp.base.clock import Clock
from mpicomp.base.errors import ConfigError, MpicompError
from mpicomp.transports.counters.base import ByteCounter
from mpicomp.transports.exchange import Exchange

AHEAD = 2**22  # bytes: while so many are under way to the server, it posts no more receives

Take = Callable[[int, Bytes], None]  # called with a worker's number and its message
Make = Callable[[int], Bytes]  # called with a worker's number; makes the message to it
T = TypeVar("T")


@dataclass(frozen=True)
class Lost:
    """A rank that has died: its number in the job, its host, and the workers that it hosted."""

    rank: int
    host: str
    workers: range


class Transport(ABC):
    """n workers, some of them hosted on this rank; one rank is the server.

    stop            set it to True on any rank to ask that the run end, on all ranks after the same round
    sent            payload bytes that this rank has sent: [messages, observations].  A broadcast counts once
                    for each receiving rank; blocks of broadcasts that this rank passes on count too
    counter         an independent count of this rank's MPI traffic, if requested and there are several ranks
    activity        the current step of the run, such as "in round 7", for error messages
    names           the names, for error messages, of the runs, Aggregators and Descents that these ranks
                    have made; a ``Call`` refers to one by its index (see ``calls``)
    device_buffers  True: messages are in the memory of the device in use; False: in the host's memory
    any_thread      whether one thread may use this transport while others use other transports
    waits_end       whether every wait for another rank ends, with an error at the latest
    """

    n: int
    rank: int
    ranks: int
    hosted: range  # the workers that live in this process
    is_server: bool
    stop: bool = False
    activity: str = "at the start of the run"
    names: list[str]
    sent: list[int]
    counter: ByteCounter | None = None
    device_buffers: bool = False
    any_thread: bool = True
    waits_end: bool = True
    clock: Clock

    @abstractmethod
    def gather(self, senders: Sequence[int], take: Take) -> AbstractContextManager[Take]:
        """Bring the workers' messages to the server, where ``take(i, message)`` gets them in worker order.

        ``senders`` are the workers that send a message, increasing, the same on every rank.  The context
        yields a function ``send``.  Inside the ``with`` block each rank calls ``send(i, message)`` for each
        sender i that it hosts, in increasing order.  On the server ``send`` is ``take`` itself; the other
        ranks' messages are taken at the end of the block.  Their bytes are valid until ``take`` returns.

        If the block raises an ``MpicompError`` on another rank than the server, the error ends here, and is
        sent in place of the messages that are left.  The server raises it, once all messages under way are
        here; its caller then calls ``fail``, so that ``broadcast`` raises it on the other ranks.
        """

    @abstractmethod
    def broadcast(self, message: Bytes | None) -> tuple[Bytes, bool]:
        """Send the server's message to every rank.

        message  the bytes to send on the server; None on the other ranks

        Returns the message, whose bytes are valid until the next call, and whether some rank has asked to
        stop, the same on every rank.  If the server has called ``fail`` instead, its error is raised on the
        other ranks.
        """

    @abstractmethod
    def scatter(self, make: Make, take: Take) -> None:
        """Send each worker a message of its own; every ``scatter`` is followed by a ``broadcast``.

        make  called on the server for each worker, in worker order; the server holds no more messages than
              ``AHEAD`` bytes of them, or one
        take  called on the rank of each worker i with i and its message, in worker order; the bytes are valid
              until it returns

        If ``make`` raises an ``MpicompError``, it is raised on the server, whose caller then calls ``fail``.
        The other ranks take no further messages, and raise the error in ``broadcast``.
        """

    @abstractmethod
    def exchange(self, blocks: int) -> Exchange:
        """An ``Exchange`` in which all messages are cut into ``blocks`` blocks, each served by one rank."""

    @abstractmethod
    def sum_all(self, vector: NDArray[np.floating]) -> None:
        """Replace ``vector``, of one shape and type on all ranks, by the sum over the ranks: MPI_Allreduce.

        Its bytes are added to this rank's ``sent`` once, however the library takes the sum.
        """

    @abstractmethod
    def fail(self, error: MpicompError) -> None:
        """Raise ``error`` on the other ranks, which wait in ``broadcast``; called on the server.

        It returns on the server, whose caller raises the error there.
        """

    @abstractmethod
    def observe(self, take: Take) -> AbstractContextManager[Take]:
        """``gather`` for measurements, from all workers.  Not counted as messages; no method sees them."""

    @abstractmethod
    def broadcast_control(self, message: bytes | None) -> bytes:
        """Broadcast the server's ``message``, which is no part of a method; not counted as traffic."""

    @abstractmethod
    def raise_on_all(self, action: Callable[[], T]) -> T:
        """Run ``action`` here.  If it failed on some rank, raise the lowest such rank's error on all."""

    def ask_server(self, action: Callable[[], T]) -> T:
        """Run ``action`` on the server only; every rank gets its result, which must be picklable.

        An ``MpicompError`` of ``action`` is raised on every rank, and a ``ConfigError`` if its result cannot
        be pickled, as that of a class defined in a function.  Any other error leaves this call on the server
        alone and ends the job there (``abort``).
        """
        answer: tuple[T | None, MpicompError | None] = None, None
        if self.is_server:
            try:
                answer = action(), None
            except MpicompError as error:
                answer = None, error
        message = self.broadcast_control(_pickled(answer) if self.is_server else None)
        result, failure = pickle.loads(message)
        if failure is not None:
            raise failure
        return result

    @abstractmethod
    def host(self) -> str:
        """This rank's host and MPI library, for the record."""

    def abort(self) -> None:  # noqa: B027 (by default nothing is to be done)
        """After an unexpected exception: print its traceback and end every rank of a job at once.

        By default the exception itself ends this process, and the transport then fails on the others.
        """

    @property
    def is_over(self) -> bool:
        """Whether the ranks cannot work together any more, so that a ``close`` has nobody to meet.

        MPI is finalized, a rank has been lost, an uncaught exception ends this process, a rank forked it,
        or the launcher ends the other ranks with it.
        """
        return False

    @abstractmethod
    def collect(self, value: object) -> list[object] | None:
        """Gather each rank's ``value``, in rank order, on the server; None on other ranks.  Not counted."""

    def outlives(self, error: BaseException) -> bool:
        """True if ``error``, raised by an operation, means that a rank died and the others may go on."""
        return False

    def shrink(self) -> list[Lost]:
        """Go on without the dead ranks, and return them; call it after an error that this ``outlives``.

        The remaining workers are renumbered from 0, in their old order.  Messages under way are lost.
        If the server has died, or no worker is left, the job ends.
        """
        return []

    @abstractmethod
    def tell_all(self, number: int) -> list[int]:
        """Allgather one ``number`` per rank, from 0 to 2⁶⁴ - 1, in rank order; not counted as traffic.

        All transports on the same ranks share one communicator for this.  So if two ranks call different
        transports, both see it here.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the transport's resources; collective, once the run is over on every rank."""


def _pickled(answer: tuple[object, MpicompError | None]) -> bytes:
    """``answer`` pickled; in place of one that cannot be, the error that says so."""
    try:
        return pickle.dumps(answer)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        refused = ConfigError(
            f"objects of the run must be ones that rank 0 could send to other ranks: {error}. Define classes "
            "of your own at the top level of a file or notebook, not in a function; after you define a class "
            "again, make its objects again; and keep lambdas, open files and locks out of their fields."
        )
        return pickle.dumps((None, refused))


def shares_of(n: int, ranks: int, dedicated: bool) -> list[range]:
    """The worker numbers of each rank, in contiguous shares; with a dedicated server rank 0 hosts none."""
    hosts = ranks - 1 if dedicated else ranks
    shares = [range(r * n // hosts, (r + 1) * n // hosts) for r in range(hosts)]
    return [range(0), *shares] if dedicated else shares
