"""Methods whose server sends each worker a message of its own, beside the broadcast."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NoReturn

from mpicomp.base.blocks import Blocks
from mpicomp.base.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.methods.base import Message, Method


class ScatteringMethod(Method):
    """A method whose rounds, where ``scatters`` says so, have a step more before the broadcast::

        own_i  =  own_message(s, r, key_i)     server -> worker i, once the server's step is closed
                  receive(w_i, own_i, key_i)   on the rank of worker i

    ``Own`` is the record of such a message.  Workers then differ in what they know of the server's model, so
    no rank but the server has the iterate: ``model`` names it among the server's fields, and this is what a
    run hashes.  The server's step must replace that array, and not change it, for it is hashed meanwhile.
    Such a method needs one server, which makes all messages: ``server`` is "shared" or "dedicated".
    """

    Own: ClassVar[type] = Message
    separable: ClassVar[bool] = False  # one server makes all messages to a worker

    @abstractmethod
    def scatters(self, key: Key) -> bool:
        """Whether the server sends each worker a message of its own in the round of ``key``."""

    @abstractmethod
    def own_message(self, s: Any, r: Any, key: Key) -> Any:
        """Make the message to the worker of ``key`` alone, a record ``Own``; this changes no record."""

    @abstractmethod
    def receive(self, w: Any, own: Any, key: Key) -> None:
        """Update the record ``w`` of the worker of ``key`` from its own message.

        Raises ``MessageError`` if the bytes cannot be such a message.
        """

    @abstractmethod
    def paper_bits_own(self, own: Any, d: int, key: Key) -> int:
        """The bits that the paper charges for the message ``own`` to the worker of ``key``."""

    def in_blocks(self, blocks: Blocks) -> NoReturn:
        refuse_server(self, "sharded")


def refuse_server(method: Method, server: str) -> NoReturn:
    """Raise ``ConfigError``: ``server`` has no one rank that makes a message for each worker."""
    raise ConfigError(
        f"{type(method).__name__} sends each worker a message of its own, which one server makes; "
        f"server={server!r} has none: use server='shared' or 'dedicated'."
    )
