"""Messages that are coming in a given order of ranks: the interface, and the owner of their memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from mpicomp.base.bits import Bytes
from mpicomp.transports.inbox import Inbox

MOST = 64  # messages under way: short messages reach this limit before their bytes reach AHEAD


class Arrived(Protocol):
    """A message and the place of its memory, as ``Inbox.take`` was asked for it."""

    buffer: Bytes
    device: Any


class Coming(ABC):
    """The messages of some ranks, to be taken one after the other; ``len`` of it are not yet taken."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._taken: Arrived | None = None

    @abstractmethod
    def __len__(self) -> int:
        """The number of messages not yet taken."""

    @abstractmethod
    def take(self) -> tuple[Bytes, int]:
        """Wait for the next message; return it and its status.  Its bytes are valid until the next ``take``.

        After an error here, do not call ``take`` again.
        """

    def let_go(self) -> None:
        """Give back the memory of the message that was taken last."""
        if self._taken is not None:
            self._inbox.give_back(self._taken.buffer, self._taken.device)
            self._taken = None

    def keep(self) -> Callable[[], None]:
        """Keep the bytes of the last message valid.  Call the returned function to release them."""
        message, self._taken = self._taken, None
        assert message is not None
        return partial(self._inbox.give_back, message.buffer, message.device)
