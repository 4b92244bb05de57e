"""The root serves: all messages go to rank 0, which averages and broadcasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from mpicomp import kernels, messages
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MpicompError
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.runtime.serving.base import Serving, Uplink
from mpicomp.transports import Transport

if TYPE_CHECKING:
    from mpicomp.runtime.rounds import Rounds


class Root(Serving):
    """Rank 0 holds the server's state.  Its ledger is complete; another rank's has the uplink from there."""

    def __init__(self, method: Method, transport: Transport) -> None:
        self.running, self._transport = method, transport

    def begin(self, x: Array) -> None:
        self.server = self.running.server(x) if self._transport.is_server else None

    def play(self, at: Rounds, uplink: Uplink, senders: Sequence[int], key: Key) -> tuple[Bytes, int, bool]:
        t = self._transport
        down: Bytes | None = None
        try:
            with closing(t.gather(self._encoded(at, uplink), senders)) as received:
                if t.is_server:
                    at.check()
                    with t.clock.phase("server"):
                        ups = self._decoded(at, received, key)
                        mean = self.running.server_step(self.server, at.replica, ups, key)
                        down = at.for_transport(messages.encode(mean))
        except MpicompError as error:
            error = at.named(error)
            t.fail(error)
            raise error from None
        down, stop = t.broadcast(down)
        return down, len(down), stop

    def _encoded(self, at: Rounds, uplink: Uplink) -> Iterator[tuple[int, Bytes]]:
        """The hosted workers' messages.  Elsewhere than on the server the ledger counts them here."""
        for i, up in uplink:
            with self._transport.clock.phase("compress"):
                message = at.for_transport(messages.encode(up))
            if not self._transport.is_server:
                at.ledger.up[at.original_ids[i]] += len(message)
            yield i, message

    def _decoded(
        self, at: Rounds, received: Iterator[tuple[int, Bytes]], key: Key
    ) -> Iterator[tuple[Key, Any]]:
        """The received messages, decoded and entered in the ledger."""
        for i, message in received:
            at.sender = i
            up: Any = messages.decode(self.running.Up, kernels.to_device(message))
            at.enter(at.ledger, up, key.of(i), len(message))
            yield key.of(i), up

    def decode(self, broadcast: Bytes) -> Any:
        return messages.decode(self.running.Down, kernels.to_device(broadcast))

    def states(self) -> dict[str, Any]:
        return {"server": self.server} if self._transport.is_server else {}

    def model(self, name: str) -> Array | None:
        return getattr(self.server, name) if self._transport.is_server else None
