"""The interface of transports.  A transport moves bytes between n workers and a server; it knows no method.

Every operation is collective: all ranks call it, in the same order.  Errors are collective too: one
that a rank meets inside ``gather``, ``raise_on_all`` or ``ask_server`` is raised on all ranks, so that a
run ends everywhere at the same point and can be reported once.
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
from mpicomp.base.errors import MpicompError
from mpicomp.transports.counters.base import ByteCounter
from mpicomp.transports.exchange import Exchange

AHEAD = 2**22  # bytes: while so many are on their way to the server it asks for no more

Take = Callable[[int, Bytes], None]  # of a worker and its message
T = TypeVar("T")


@dataclass(frozen=True)
class Lost:
    """A rank that has died: its number in the job, its host, and the workers that it hosted."""

    rank: int
    host: str
    workers: range


class Transport(ABC):
    """n workers, some of them hosted here; one rank is the server.

    stop            set it to ask, from any rank, that the run end after a common round
    sent            payload bytes this rank is the origin of: [messages, observations], a broadcast once a
                    rank; and blocks of broadcasts that it passes on
    counter        an independent count of this rank's MPI traffic, if requested and there are several ranks
    activity        what the run is doing, for error messages
    names           of what these ranks call together, by the number that a call has of it (see ``calls``)
    device_buffers  whether messages are taken and given in the memory of the device in use; else the host's
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
    clock: Clock

    @abstractmethod
    def gather(self, senders: Sequence[int], take: Take) -> AbstractContextManager[Take]:
        """Bring the workers' messages to the server, where ``take(i, message)`` gets them in worker order.

        ``senders`` are the workers that send at all, increasing, the same on every rank.  Within the block
        the function that is yielded is called with each hosted sender and its message, in their order; on
        the server it is ``take`` itself.  The other ranks' messages are taken at the end of the block.  A
        message's bytes are valid until ``take`` returns.

        Elsewhere than on the server an ``MpicompError`` of the block travels in the place of the messages
        that are left.  On the server it is raised, once all messages under way are here.
        """

    @abstractmethod
    def broadcast(self, message: Bytes | None) -> tuple[Bytes, bool]:
        """The server's message on every rank, and whether some rank has asked to stop."""

    @abstractmethod
    def exchange(self, blocks: int) -> Exchange:
        """What serves that many blocks of all messages, each by one rank."""

    @abstractmethod
    def sum_all(self, vector: NDArray[np.floating]) -> None:
        """Replace ``vector``, of one shape and type on all ranks, by the sum over the ranks: MPI_Allreduce.

        It is charged to this rank's ``sent`` once.
        """

    @abstractmethod
    def fail(self, error: MpicompError) -> None:
        """Raise ``error`` on the other ranks, which wait in ``broadcast``; called on the server.

        It returns on the server, whose caller raises the error there.
        """

    @abstractmethod
    def observe(self, take: Take) -> AbstractContextManager[Take]:
        """``gather`` for measurements of all workers.  Never counted, and invisible to methods."""

    @abstractmethod
    def broadcast_control(self, message: bytes | None) -> bytes:
        """The server's ``message`` on every rank.  Control: no part of a method, counted nowhere."""

    @abstractmethod
    def raise_on_all(self, action: Callable[[], T]) -> T:
        """Run ``action`` here.  If it failed on some rank, raise the lowest such rank's error on all."""

    def ask_server(self, action: Callable[[], T]) -> T:
        """Run ``action`` on the server only; every rank gets its result, which must be picklable.

        An ``MpicompError`` of ``action`` is raised on every rank.  Any other error leaves this call on the
        server alone and ends the job there (``abort``).
        """
        answer: tuple[T | None, MpicompError | None] = None, None
        if self.is_server:
            try:
                answer = action(), None
            except MpicompError as error:
                answer = None, error
        message = self.broadcast_control(pickle.dumps(answer) if self.is_server else None)
        result, failure = pickle.loads(message)
        if failure is not None:
            raise failure
        return result

    @abstractmethod
    def host(self) -> str:
        """This rank's host and MPI library, for the record."""

    @abstractmethod
    def abort(self) -> None:
        """After an unexpected exception: print its traceback and end every rank of a job at once."""

    @abstractmethod
    def collect(self, value: object) -> list[object] | None:
        """Each rank's ``value`` in rank order, on the server.  For reports at the end of a run."""

    @abstractmethod
    def outlives(self, error: BaseException) -> bool:
        """Whether ``error``, raised by an operation, is a rank's death that the others can survive."""

    @abstractmethod
    def shrink(self) -> list[Lost]:
        """After an error that it ``outlives``: go on without the dead ranks, and return them.

        The workers that are left are numbered anew, from 0 and in their order.  What was under way is lost.
        Where the server has died, or nobody is left to work, the job ends.
        """

    @abstractmethod
    def tell_all(self, number: int) -> list[int]:
        """Each rank's ``number``, from 0 to 2⁶⁴ - 1, in rank order, on every rank.  Counted nowhere.

        All transports on the same ranks tell each other there, so a rank that calls another one is noticed.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the transport's resources; collective, once the run is over on every rank."""


def placement(n: int, ranks: int, dedicated: bool) -> list[range]:
    """Contiguous worker numbers for each rank; a dedicated server's rank 0 hosts none."""
    hosts = ranks - 1 if dedicated else ranks
    shares = [range(r * n // hosts, (r + 1) * n // hosts) for r in range(hosts)]
    return [range(0), *shares] if dedicated else shares
