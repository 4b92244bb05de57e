"""Every rank serves its share: block b of all messages goes to one rank, which averages and publishes it.

Theory of operation.  The vectors are cut into S blocks, on which the compressors act one by one
(``compressors.blockwise``).  So a worker's message is S messages, and a server step for block b needs block b
of the messages, of the server's state and of the replica, and nothing else.  Each rank runs these steps for
the blocks that it serves, sends off what they give, and follows when it has all S blocks.
Iterates depend on S, and not on the number of ranks: sums are taken in worker order in every block.

With n workers on n ranks and S = n, a rank sends and receives about one message and one broadcast a round,
whatever n is; the root receives n messages and sends n broadcasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mpicomp import kernels, messages
from mpicomp.base.bits import Bytes
from mpicomp.base.blocks import BlockMessages, Blocks
from mpicomp.base.errors import MpicompError
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.runtime.ledger import Ledger
from mpicomp.runtime.serving.base import Serving, Uplink
from mpicomp.transports import Transport

if TYPE_CHECKING:
    from mpicomp.runtime.rounds import Rounds
    from mpicomp.runtime.serving.early import Early


class Sharded(Serving):
    """This rank serves the blocks in ``exchange.served``.

    Each rank's ledger has the uplink from there; that of the server is complete after ``settle``.
    """

    def __init__(self, method: Method, transport: Transport, blocks: Blocks) -> None:
        self._plain, self._transport, self._blocks = method, transport, blocks
        self.running = method.in_blocks(blocks)
        self.exchange = transport.exchange(len(blocks))
        self._methods = {b: self.running.of_block(b) for b in self.exchange.served}
        # Bytes of the hosted workers' messages, and of the broadcasts, since the start.
        self.up_by_block = np.zeros((len(transport.hosted), len(blocks)), np.int64)
        self.down_by_block = np.zeros(len(blocks), np.int64)
        self._share = Ledger(transport.n)  # the uplink from here that the server's ledger lacks
        self.early: Early | None = None  # sends messages before ``play``, in rounds that it begins

    def slices(self, d: int) -> list[slice]:
        """The slice of each block in a vector in R^d."""
        return self._blocks.slices(d)

    def begin(self, x: Array) -> None:
        slices = self.slices(x.size)
        self.servers = {b: self._plain.server(x[slices[b]]) for b in self.exchange.served}

    def play(self, at: Rounds, uplink: Uplink, senders: Sequence[int], key: Key) -> tuple[Any, int, bool]:
        if self.early is not None and self.early.begun:
            self.early.commit()
        else:
            self.exchange.send(self._encoded(at, uplink, key), senders)
        for b in self.exchange.served:
            try:
                with closing(self.exchange.receive(b, senders)) as received:
                    at.check()
                    with self._transport.clock.phase("server"):
                        mean = self._step(at, b, received, key)
                        message = at.for_transport(messages.encode(mean))
                self.exchange.publish(b, message)
            except MpicompError as error:
                self.exchange.publish(b, at.named(error))
        downs, stop = self.exchange.collect()
        self.down_by_block += [len(down) for down in downs]
        return downs, sum(map(len, downs)), stop

    def _encoded(self, at: Rounds, uplink: Uplink, key: Key) -> Iterator[tuple[int, list[Bytes]]]:
        """The messages of each hosted worker, one for each block, entered in this rank's ledger."""
        for i, up in uplink:
            with self._transport.clock.phase("compress"):
                by_block = [at.for_transport(messages.encode(one)) for one in self._split(up)]
            for b, message in enumerate(by_block):
                self.book(at, i, b, len(message))
            self.enter(at, i, up, sum(map(len, by_block)), key)
            yield i, by_block

    def book(self, at: Rounds, i: int, b: int, size: int) -> None:
        """Count ``size`` bytes of the hosted worker i for block b as sent from here."""
        self.up_by_block[i - self._transport.hosted.start, b] += size
        if not self._transport.is_server:
            at.ledger.up[at.original_ids[i]] += size

    def enter(self, at: Rounds, i: int, up: Any, size: int, key: Key) -> None:
        """Enter the hosted worker i's message in what the server's ledger will be told; None: one dropped."""
        if up is None:
            self._share.up[at.original_ids[i]] += size
        else:
            at.enter(self._share, up, key.of(i), size)

    def _split(self, up: Any) -> Iterator[Any]:
        """For each block, the record that has this block of each message of ``up``."""
        values = {f.name: getattr(up, f.name) for f in fields(up)}
        in_blocks = {name: value for name, value in values.items() if isinstance(value, BlockMessages)}
        for b in range(len(self._blocks)):
            yield replace(up, **{name: value.of_blocks[b] for name, value in in_blocks.items()})

    def _step(self, at: Rounds, b: int, received: Iterator[tuple[int, Bytes]], key: Key) -> Any:
        """The server step for block b."""

        def decoded() -> Iterator[tuple[Key, Any]]:
            for i, message in received:
                at.sender = i
                up: Any = messages.decode(self.running.Up, kernels.to_device(message))
                yield key.of(i), up

        where = self._blocks.slices(at.x.size)[b]
        replica = block_of(at.replica, where, at.x.size)
        return self._methods[b].server_step(self.servers[b], replica, decoded(), key)

    def decode(self, broadcast: list[Bytes]) -> Any:
        return joined([messages.decode(self.running.Down, kernels.to_device(one)) for one in broadcast])

    def states(self) -> dict[str, Any]:
        return {f"server-{b}": server for b, server in self.servers.items()}

    def model(self, name: str) -> Array | None:
        own = {b: kernels.to_host(getattr(server, name)) for b, server in self.servers.items()}
        told: Any = self._transport.collect(own)
        if told is None:
            return None
        found = {b: block for one in told for b, block in one.items()}
        return kernels.to_device(np.concatenate([found[b] for b in range(len(self._blocks))]))

    def unsettled(self) -> dict[str, Any]:
        return {"share": self._share}

    def settle(self, at: Rounds) -> None:
        told: Any = self._transport.collect(self._share)
        self._share = Ledger(self._share.n)
        if told is not None:
            for share in told:
                at.ledger.add_up(share)

    def booked(self) -> tuple[list[int], int]:
        t, owners = self._transport, self.exchange.owners
        to_each = [0] * t.ranks
        for b, owner in enumerate(owners):
            to_each[owner] += int(self.up_by_block[:, b].sum())
            for rank in self.exchange.receivers(b):
                to_each[rank] += int(self.down_by_block[b])
        to_each[t.rank] = 0
        return to_each, 0


def joined(records: list[Any]) -> Any:
    """The record in blocks whose blocks are the messages of these records."""
    names = [f.name for f in fields(records[0]) if not isinstance(getattr(records[0], f.name), float)]
    return replace(records[0], **{k: BlockMessages(tuple(getattr(r, k) for r in records)) for k in names})


def block_of(record: Any, where: slice, d: int) -> Any:
    """A copy of ``record`` with views of the entries ``where`` of its vectors in R^d."""
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    return replace(record, **{k: v[where] for k, v in values.items() if getattr(v, "shape", None) == (d,)})
