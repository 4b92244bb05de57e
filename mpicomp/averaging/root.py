"""Average at the root: every worker sends its message to rank 0, and rank 0 broadcasts the result.

Where the method scatters, rank 0 first sends each worker a message of its own.  An error that rank 0 met
before or meanwhile is raised on all ranks by the broadcast, which ends every round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpicomp.averaging.base import Averaging, Receive, WorkerStep, begun, first_error
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MpicompError
from mpicomp.keys import Key
from mpicomp.methods.base import Accumulator
from mpicomp.methods.support.scattering import ScatteringMethod


class Root(Averaging):
    """Rank 0 averages and holds the server's state.

    Rank 0's ledger is complete.  Another rank's ledger has the messages of and to its own workers, and all
    broadcasts.
    """

    def begin(self, x: Array) -> None:
        self.server = self.method.server(x) if self.transport.is_server else None

    def play(
        self, step: WorkerStep, receive: Receive, senders: Sequence[int], replica: Any, key: Key
    ) -> tuple[Bytes, int, bool]:
        t, books, clock = self.transport, self.books, self.transport.clock
        server_step: Accumulator | None = None
        down: Bytes | None = None
        failed: MpicompError | None = None

        def take(i: int, message: Bytes) -> None:
            """On the server: take the message of worker i."""
            assert server_step is not None
            with clock.phase("server"):
                books.sender, sent_by = i, key.of(i)
                up: Any = books.decoded(self.method.Up, message)
                books.enter(up, sent_by, len(message))
                server_step.take(sent_by, up)

        try:
            with t.gather(senders, take) as send:
                if t.is_server:
                    books.check()
                    server_step = begun(self.method, self.server, replica, key)
                for i in self.hosted(senders):
                    with clock.phase("compress"):
                        message = books.encoded(step(i))
                    if not t.is_server:
                        books.ledger.up[books.original_ids[i]] += len(message)
                    send(i, message)
            if server_step is not None:
                with clock.phase("server"):
                    down = books.encoded(server_step.close())
        except MpicompError as error:
            failed = books.named(first_error(server_step, error))
        reachable = failed is None or t.is_server  # else this rank has lost the server
        if reachable and isinstance(self.method, ScatteringMethod) and self.method.scatters(key):
            failed = self._scatter(self.method, receive, replica, key, failed)
        if failed is not None:
            t.fail(failed)
            raise failed from None
        down, stop = t.broadcast(down)
        return down, len(down), stop

    def _scatter(
        self, method: ScatteringMethod, receive: Receive, replica: Any, key: Key, failed: MpicompError | None
    ) -> MpicompError | None:
        """Send each worker its own message; return the error to raise on all ranks, ``failed`` if given."""
        t, books, clock = self.transport, self.books, self.transport.clock

        def make(i: int) -> Bytes:
            """On the server: make the message to worker i, and charge it."""
            if failed is not None:
                raise failed
            with clock.phase("server"):
                own = method.own_message(self.server, replica, key.of(i))
                message = books.encoded(own)
                books.enter_own(own, key.of(i), len(message))
            return message

        def take(i: int, message: Bytes) -> None:
            if not t.is_server:
                books.ledger.down[books.original_ids[i]] += len(message)
            with clock.phase("compress"):
                receive(i, message)

        try:
            t.scatter(make, take)
        except MpicompError as error:
            return failed or books.named(error)
        return failed

    def decode(self, broadcast: Bytes) -> Any:
        return self.books.decoded(self.method.Down, broadcast)

    def states(self) -> dict[str, Any]:
        return {"server": self.server} if self.transport.is_server else {}

    def model(self, name: str) -> Array | None:
        return getattr(self.server, name) if self.transport.is_server else None
