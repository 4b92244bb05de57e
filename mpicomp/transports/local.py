"""All workers and the server in this process.  The codec and the ledger are the real ones."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.bits import Bytes
from mpicomp.base.clock import Clock
from mpicomp.base.errors import MpicompError
from mpicomp.transports.base import Make, T, Take, Transport
from mpicomp.transports.exchange import Exchange, LocalExchange


class Local(Transport):
    """One process: messages are encoded and decoded as over MPI, but go nowhere."""

    device_buffers = True  # messages go nowhere, so they need not leave the device

    def __init__(self, n: int) -> None:
        self.n, self.rank, self.ranks = n, 0, 1
        self.hosted, self.is_server = range(n), True
        self.clock = Clock()
        self.names = ["a run"]
        self.sent = [0, 0]

    def gather(self, senders: Sequence[int], take: Take) -> AbstractContextManager[Take]:
        return nullcontext(take)

    def broadcast(self, message: Bytes | None) -> tuple[Bytes, bool]:
        assert message is not None
        return message, self.stop

    def scatter(self, make: Make, take: Take) -> None:
        for i in range(self.n):
            message = make(i)
            if i in self.hosted:
                take(i, message)

    def exchange(self, blocks: int) -> Exchange:
        return LocalExchange(blocks, self.hosted, lambda: self.stop)

    def sum_all(self, vector: NDArray[np.floating]) -> None:
        """Nothing to do: the sum over one rank is the vector itself."""

    def fail(self, error: MpicompError) -> None:
        """Nothing to do: no other rank waits."""

    def observe(self, take: Take) -> AbstractContextManager[Take]:
        return nullcontext(take)

    def broadcast_control(self, message: bytes | None) -> bytes:
        assert message is not None
        return message

    def raise_on_all(self, action: Callable[[], T]) -> T:
        return action()

    def host(self) -> str:
        return f"{socket.gethostname()}, one process"

    def collect(self, value: object) -> list[object]:
        return [value]

    def tell_all(self, number: int) -> list[int]:
        return [number]

    def close(self) -> None:
        """Nothing to release."""
