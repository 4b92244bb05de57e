"""Sharded averaging's exchange: one rank receives block b of all messages and broadcasts its result."""

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

        send          once; or begin once, and then post for each block, from the last to the first
        receive       for each block that it serves, from the last to the first; and after each of these
        publish       with the broadcast of that block
        collect       once; or drop once, if nothing was published

    Blocks go from the last to the first, because backpropagation makes gradients in this order.
    owners  the rank that serves each block
    served  the blocks that this rank serves, decreasing
    hosted  the workers of this rank
    """

    owners: list[int]
    served: range
    hosted: range

    @abstractmethod
    def begin(self) -> None:
        """Begin a round.  The broadcasts collected in the previous round are not valid any more."""

    @abstractmethod
    def post(self, block: int, messages: Mapping[int, Bytes | MpicompError]) -> None:
        """Start to send block ``block`` of each hosted worker's message, in the order of ``messages``.

        ``messages`` maps a worker to the block of its message.  If an ``MpicompError`` stands in place of a
        message, ``receive`` raises it.
        """

    def send(self, messages: Mapping[int, list[Bytes] | MpicompError]) -> None:
        """Start to send each hosted sender's message, given as a list of its S blocks.

        If an ``MpicompError`` stands in place of a message, ``receive`` raises it on every serving rank.
        """
        self.begin()
        last = len(self.owners) - 1
        first = self.served.start if self.served else last
        for b in [*range(first, -1, -1), *range(last, first, -1)]:  # not all ranks to the same one first
            self.post(b, {i: m if isinstance(m, MpicompError) else m[b] for i, m in messages.items()})

    @abstractmethod
    def receive(self, block: int, senders: Sequence[int]) -> AbstractContextManager[Received]:
        """Yield (worker, block of its message) for all senders, in worker order.

        A message's bytes are valid until the next one is asked for.  At the end of the ``with`` block all
        messages have been received, even if the loop over them stopped early.
        """

    @abstractmethod
    def publish(self, block: int, message: Bytes | MpicompError) -> None:
        """Start to send the block's broadcast to all ranks, or the error met while the block was averaged."""

    @abstractmethod
    def receivers(self, block: int) -> list[int]:
        """The ranks to which this rank sends the block's broadcast, as its owner or by passing it on."""

    @abstractmethod
    def collect(self) -> tuple[list[Bytes], bool]:
        """The broadcasts of all blocks, and whether some rank has asked to stop; the same on every rank.

        Raises the error of the lowest block that has one, on every rank.
        """

    @abstractmethod
    def drop(self) -> None:
        """End a round in which nothing is published."""


class LocalExchange(Exchange):
    """The exchange of ``Local``: this process serves all blocks and hosts all workers."""

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
    """Return ``message``, or raise it if it is an error."""
    if isinstance(message, MpicompError):
        raise message.with_traceback(None)  # one object is raised in several places
    return message


def as_text(error: MpicompError) -> Bytes:
    """Pickle ``error`` into a message."""
    return np.frombuffer(pickle.dumps(error), dtype=np.uint8)


def as_error(text: Bytes) -> MpicompError:
    """The error in a message made by ``as_text``."""
    error: MpicompError = pickle.loads(text.tobytes())
    return error
