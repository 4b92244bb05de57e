"""Average at the root: every worker sends its message to rank 0, and rank 0 broadcasts the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpicomp import kernels
from mpicomp.averaging.base import Averaging, WorkerStep, begun, first_error
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MpicompError
from mpicomp.codecs import messages
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Accumulator


class Root(Averaging):
    """Rank 0 averages and holds the server's state.

    Rank 0's ledger is complete.  Another rank's ledger has the uplink of its own workers, and all broadcasts.
    """

    def begin(self, x: Array) -> None:
        self.server = self.method.server(x) if self.transport.is_server else None

    def play(
        self, step: WorkerStep, senders: Sequence[int], replica: Any, key: Key
    ) -> tuple[Bytes, int, bool]:
        t, books, clock = self.transport, self.books, self.transport.clock
        server_step: Accumulator | None = None
        down: Bytes | None = None

        def take(i: int, message: Bytes) -> None:
            """On the server: take the message of worker i."""
            assert server_step is not None
            with clock.phase("server"):
                books.sender, sent_by = i, key.of(i)
                up: Any = messages.decode(self.method.Up, kernels.to_device(message))
                books.enter(up, sent_by, len(message))
                server_step.take(sent_by, up)

        try:
            with t.gather(senders, take) as send:
                if t.is_server:
                    books.check()
                    server_step = begun(self.method, self.server, replica, key)
                for i in self.hosted(senders):
                    with clock.phase("compress"):
                        message = books.outgoing(messages.encode(step(i)))
                    if not t.is_server:
                        books.ledger.up[books.original_ids[i]] += len(message)
                    send(i, message)
            if server_step is not None:
                with clock.phase("server"):
                    down = books.outgoing(messages.encode(server_step.close()))
        except MpicompError as error:
            error = books.named(first_error(server_step, error))
            t.fail(error)
            raise error from None
        down, stop = t.broadcast(down)
        return down, len(down), stop

    def decode(self, broadcast: Bytes) -> Any:
        return messages.decode(self.method.Down, kernels.to_device(broadcast))

    def states(self) -> dict[str, Any]:
        return {"server": self.server} if self.transport.is_server else {}

    def model(self, name: str) -> Array | None:
        return getattr(self.server, name) if self.transport.is_server else None
