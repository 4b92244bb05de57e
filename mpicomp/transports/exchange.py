"""The exchange of blocks: block b of all messages goes to one rank, and its broadcast to all ranks."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeVar

import numpy as np

from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MpicompError

Received = Generator[tuple[int, Bytes], None, None]  # (worker, message); close it if not exhausted
T = TypeVar("T")


class Exchange(ABC):
    """S blocks, and the rank that serves each.  In a round every rank calls, in this order,

        send          once
        receive       for each block that it serves, increasing, and each time
        publish       what has been made of it
        collect       once

    owners  the rank that serves each block
    served  the blocks that this rank serves
    """

    owners: list[int]
    served: range

    @abstractmethod
    def send(self, messages: Iterable[tuple[int, list[Bytes]]], senders: Sequence[int]) -> None:
        """Send each hosted worker's message, given as its S blocks, on its way.

        ``senders`` are the workers that send at all, increasing, the same on every rank.  An ``MpicompError``
        of ``messages`` travels in the place of what is left, and ``receive`` raises it everywhere.
        """

    @abstractmethod
    def receive(self, block: int, senders: Sequence[int]) -> Received:
        """The block of all senders' messages in worker order.  A message's bytes are valid until the next."""

    @abstractmethod
    def publish(self, block: int, message: Bytes | MpicompError) -> None:
        """Send the block's broadcast to all ranks, or the error that has come of it."""

    @abstractmethod
    def collect(self) -> tuple[list[Bytes], bool]:
        """The broadcasts of all blocks, and whether some rank has asked to stop; the same on every rank.

        Raises the error of the lowest block that has one, on every rank.
        """


class LocalExchange(Exchange):
    """All blocks in this process."""

    def __init__(self, blocks: int, stop: Callable[[], bool]) -> None:
        self.owners, self.served, self._stop = [0] * blocks, range(blocks), stop

    def send(self, messages: Iterable[tuple[int, list[Bytes]]], senders: Sequence[int]) -> None:
        self._sent, self._failed = taken(messages)
        self._published: list[Bytes | MpicompError] = []

    def receive(self, block: int, senders: Sequence[int]) -> Received:
        for i in senders:
            if i not in self._sent:
                assert self._failed is not None
                raise self._failed
            yield i, self._sent[i][block]

    def publish(self, block: int, message: Bytes | MpicompError) -> None:
        self._published.append(message)

    def collect(self) -> tuple[list[Bytes], bool]:
        return sound(self._published), self._stop()


def taken(
    messages: Iterable[tuple[int, list[Bytes]]],
) -> tuple[dict[int, list[Bytes]], MpicompError | None]:
    """The messages by worker, and the error that has ended them."""
    found: dict[int, list[Bytes]] = {}
    try:
        found.update(messages)  # those before an error are kept
    except MpicompError as error:
        return found, error
    return found, None


def sound(published: list[Bytes | MpicompError]) -> list[Bytes]:
    """The broadcasts of all blocks.  Raises the first error among them."""
    for message in published:
        if isinstance(message, MpicompError):
            raise message
    return [message for message in published if not isinstance(message, MpicompError)]


def as_text(error: MpicompError) -> Bytes:
    """``error`` as a message."""
    return np.frombuffer(pickle.dumps(error), dtype=np.uint8)


def as_error(text: Bytes) -> MpicompError:
    """The error of such a message."""
    error: MpicompError = pickle.loads(text.tobytes())
    return error
