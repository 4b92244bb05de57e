"""The exchange of blocks: block b of all messages goes to one rank, and its broadcast to all ranks."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import numpy as np

from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MpicompError

Received = Iterator[tuple[int, Bytes]]  # (worker, message)
T = TypeVar("T")


class Exchange(ABC):
    """S blocks, and the rank that serves each.  In a round every rank calls, in this order,

        send          once, or: begin, and post for each block, from the last to the first
        receive       for each block that it serves, from the last to the first, and each time
        publish       what has been made of it
        collect       once, or: drop after receive, without publish

    From the last to the first: so backpropagation makes gradients.
    owners  the rank that serves each block
    served  the blocks that this rank serves, decreasing
    hosted  the workers of this rank
    """

    owners: list[int]
    served: range
    hosted: range

    @abstractmethod
    def begin(self) -> None:
        """Begin a round.  What was collected in the one before is not valid any more."""

    @abstractmethod
    def post(self, block: int, messages: Mapping[int, Bytes | MpicompError]) -> None:
        """Send a block of the messages of hosted workers on its way, the workers in their order.

        ``receive`` raises an error in the place of a message.
        """

    def send(self, messages: Mapping[int, list[Bytes] | MpicompError]) -> None:
        """Send each hosted sender's message, given as its S blocks, on its way.

        Where an ``MpicompError`` is given in its place, ``receive`` raises it everywhere.
        """
        self.begin()
        last = len(self.owners) - 1
        first = self.served.start if self.served else last
        for b in [*range(first, -1, -1), *range(last, first, -1)]:  # not all ranks to the same one first
            self.post(b, {i: m if isinstance(m, MpicompError) else m[b] for i, m in messages.items()})

    @abstractmethod
    def receive(self, block: int, senders: Sequence[int]) -> AbstractContextManager[Received]:
        """The block of all senders' messages in worker order.  A message's bytes are valid until the next.

        At the end of the ``with`` block all of them have been received, also those that were not asked for.
        """

    @abstractmethod
    def publish(self, block: int, message: Bytes | MpicompError) -> None:
        """Send the block's broadcast, or the error that has come of it, on its way to all ranks."""

    @abstractmethod
    def receivers(self, block: int) -> list[int]:
        """The ranks to which this rank sends the block's broadcast, its own or one that it passes on."""

    @abstractmethod
    def collect(self) -> tuple[list[Bytes], bool]:
        """The broadcasts of all blocks, and whether some rank has asked to stop; the same on every rank.

        Raises the error of the lowest block that has one, on every rank.
        """

    @abstractmethod
    def drop(self) -> None:
        """End a round in which nothing is published."""


class LocalExchange(Exchange):
    """All blocks in this process."""

    def __init__(self, blocks: int, workers: range, stop: Callable[[], bool]) -> None:
        self.owners, self.served, self.hosted = [0] * blocks, range(blocks - 1, -1, -1), workers
        self._stop = stop

    def begin(self) -> None:
        self._sent: dict[int, Mapping[int, Bytes | MpicompError]] = {}
        self._published: dict[int, Bytes | MpicompError] = {}

    def post(self, block: int, messages: Mapping[int, Bytes | MpicompError]) -> None:
        self._sent[block] = messages

    def receive(self, block: int, senders: Sequence[int]) -> AbstractContextManager[Received]:
        return nullcontext((i, sound(self._sent[block][i])) for i in senders)

    def publish(self, block: int, message: Bytes | MpicompError) -> None:
        self._published[block] = message

    def receivers(self, block: int) -> list[int]:
        return []

    def collect(self) -> tuple[list[Bytes], bool]:
        return [sound(self._published[b]) for b in range(len(self.owners))], self._stop()

    def drop(self) -> None:
        """Nothing is under way."""


def sound(message: Bytes | MpicompError) -> Bytes:
    """``message``; raises it if it is an error."""
    if isinstance(message, MpicompError):
        raise message.with_traceback(None)  # one object is raised in several places
    return message


def as_text(error: MpicompError) -> Bytes:
    """``error`` as a message."""
    return np.frombuffer(pickle.dumps(error), dtype=np.uint8)


def as_error(text: Bytes) -> MpicompError:
    """The error of such a message."""
    error: MpicompError = pickle.loads(text.tobytes())
    return error
