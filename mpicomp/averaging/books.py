"""What a round is charged to: the ledger, and the worker and the round that an error names."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.averaging.ledger import Ledger
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import DivergedError, MessageError, MpicompError
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.transports import Transport


class Books:
    """The ledger of a method's rounds on this rank, and the names of its workers.

    method        as it runs here, in blocks if there are any
    d             the length of the iterate
    ledger        the bytes so far
    original_ids  a worker's number here -> its number at the start
    sender        the worker whose message this rank, as a server, has taken last
    """

    def __init__(self, method: Method, d: int, transport: Transport) -> None:
        self.method, self.d, self.transport = method, d, transport
        self.ledger = Ledger(transport.n)
        self.original_ids = np.arange(transport.n)
        self.sender: int | None = None
        self._failed: MpicompError | None = None

    def enter(self, up: Any, key: Key, size: int, ledger: Ledger | None = None) -> None:
        """Enter the message ``up`` of the worker of ``key``, of ``size`` bytes, here or in another ledger."""
        ledger = self.ledger if ledger is None else ledger
        ledger.up[self.original_ids[key.worker]] += size
        if key.round < self.method.setup_rounds:
            ledger.set_up_bytes += size
        ledger.paper_bits_up += self.method.paper_bits(up, self.d, key)

    def named(self, error: MpicompError) -> MpicompError:
        """``error``, with the round and, where a message is bad, its sender."""
        name = self.transport.activity
        if isinstance(error, DivergedError):
            return DivergedError(f"{name}: {error} {advice(self.method)}")
        if isinstance(error, MessageError):
            sender = self.sender if error.worker is None else error.worker
            assert sender is not None
            return MessageError(f"{name}: worker {self.original_ids[sender]}: {error}")
        return error

    def outgoing(self, message: Bytes) -> Bytes:
        """``message`` in the memory that the transport takes: the device in use, or the host."""
        return message if self.transport.device_buffers else kernels.to_host(message)

    def fail(self, error: MpicompError | None) -> None:
        """From now on ``check`` raises ``error``, or with None nothing."""
        self._failed = error

    @property
    def sound(self) -> bool:
        """Whether ``check`` raises nothing."""
        return self._failed is None

    def check(self) -> None:
        """Raise the error of the last broadcast, perhaps of this rank alone, or the one given to ``fail``.

        Call it only where the transport reports errors to all ranks.
        """
        if self._failed is not None:
            raise self._failed


def advice(method: Method) -> str:
    """What to do about a run that diverges."""
    return f"The step size may be too large: {method.step_name}={method.step}; try another."
