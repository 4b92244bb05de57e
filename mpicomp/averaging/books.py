"""Encode and decode the messages of a round, charge them to the ledger, and name their senders in errors."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from mpicomp import kernels
from mpicomp.averaging.ledger import Ledger
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import as_integer
from mpicomp.base.errors import ConfigError, DivergedError, MessageError, MpicompError
from mpicomp.codecs import messages
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.methods.parameters import is_auto
from mpicomp.methods.support.scattering import ScatteringMethod
from mpicomp.transports import Transport

R = TypeVar("R")


class Books:
    """The ledger of a method's rounds on this rank, and the original numbers of its workers.

    method        the method as it runs on this rank, in blocks if there are any
    d             the length of the iterate
    ledger        the bytes so far
    original_ids  a worker's number now -> its number at the start of the run; they differ once ranks died
    sender        the worker whose message this rank, as a server, has taken last
    advice        what an error of divergence advises; of the method's step, unless the caller sets another
    """

    def __init__(self, method: Method, d: int, transport: Transport) -> None:
        self.method, self.d, self.transport = method, d, transport
        self.advice = advice_on_step(method)
        self.ledger = Ledger(transport.n)
        self.original_ids = np.arange(transport.n)
        self.sender: int | None = None
        self._failed: MpicompError | None = None

    def enter(self, up: Any, key: Key, size: int, ledger: Ledger | None = None) -> None:
        """Charge ``up``, ``size`` bytes of the worker of ``key``, to ``ledger``; None: to the one here."""
        ledger = self.ledger if ledger is None else ledger
        ledger.up[self.original_ids[key.worker]] += size
        if key.round < self.method.setup_rounds:
            ledger.set_up_bytes += size
        ledger.paper_bits_up += self._count("paper_bits", self.method.paper_bits(up, self.d, key))

    def enter_own(self, own: Any, key: Key, size: int) -> None:
        """Charge the message ``own``, of ``size`` bytes, which goes to the worker of ``key`` alone."""
        assert isinstance(self.method, ScatteringMethod)
        for received in (self.ledger.down, self.ledger.own):
            received[self.original_ids[key.worker]] += size
        charged = self._count("paper_bits_own", self.method.paper_bits_own(own, self.d, key))
        self.ledger.paper_bits_down += charged

    def charge_down(self, down: Any, key: Key) -> int:
        """The bits that the paper charges for sending ``down`` to one worker; call it on the server.

        If ``paper_bits_down`` returns no count, ``check`` raises the error later: only this rank has it.
        """
        try:
            return self._count("paper_bits_down", self.method.paper_bits_down(down, self.d, key))
        except ConfigError as error:
            self.fail(error)
            return 0

    def _count(self, name: str, bits: Any) -> int:
        """``bits``, which the method's ``name`` gave.  Raises ``ConfigError`` if a user's gives no count."""
        if not self.method.of_ones_own:
            return bits
        return as_integer(f"{type(self.method).__name__}.{name}", bits, least=0)

    def named(self, error: MpicompError) -> MpicompError:
        """Prefix an error of divergence or of a bad message with the round and the sender of that message."""
        name = self.transport.activity
        if isinstance(error, DivergedError):
            return DivergedError(f"{name}: {error} {self.advice}")
        if isinstance(error, MessageError):
            sender = self.sender if error.worker is None else error.worker
            assert sender is not None
            return MessageError(f"{name}: worker {self.original_ids[sender]}: {error}")
        return error

    def encoded(self, record: object) -> Bytes:
        """The message of ``record``, in the memory that the transport reads."""
        return self.outgoing(messages.encode(record))

    def decoded(self, kind: type[R], message: Bytes) -> R:
        """The record of this kind in a message that came, in the memory that kernels work on.

        A method of one's own may keep the record, so it gets a copy: the next message may come to the same
        memory.  Raises ``MessageError`` unless the message is one.
        """
        message = kernels.to_device(message)
        return messages.decode(kind, message.copy() if self.method.of_ones_own else message)

    def outgoing(self, message: Bytes) -> Bytes:
        """``message`` in the memory that the transport reads: on the device in use, or on the host."""
        return message if self.transport.device_buffers else kernels.to_host(message)

    def fail(self, error: MpicompError | None) -> None:
        """Let ``check`` raise ``error`` from now on; None: let it raise nothing."""
        self._failed = error

    @property
    def sound(self) -> bool:
        """Whether ``check`` raises nothing."""
        return self._failed is None

    def check(self) -> None:
        """Raise the error given to ``fail``, such as a broadcast that this rank could not decode.

        Other ranks may not have met it, so call this only where the transport reports errors to all ranks.
        """
        if self._failed is not None:
            raise self._failed


def advice_on_step(method: Method) -> str:
    """Advice for the error message of a run that diverges."""
    if is_auto(method.step):
        return (
            f"{method.step_name}={method.step!r} has not found a step size for this problem; give a number."
        )
    return f"The step size may be too large: {method.step_name}={method.step}; try another."
