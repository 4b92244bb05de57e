"""Sharded averaging: one rank receives block b of all messages, averages it and broadcasts the result.

Theory of operation.  The vectors are cut into S blocks, and the compressors act on each block alone
(``compressors.blockwise``).  So a worker's message is S messages.  A server step for block b needs only block
b of the messages, of the server's state and of the replica.  Each rank runs these steps for the blocks that
it serves and broadcasts their results.  It updates its replica once it has the broadcasts of all S blocks.
Iterates depend on S, and not on the number of ranks: sums are taken in worker order in every block.

With n workers on n ranks and S = n, a rank sends and receives about one message and one broadcast a round,
whatever n is; the root receives n messages and sends n broadcasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.averaging.base import Averaging, Receive, WorkerStep, begun, first_error
from mpicomp.averaging.books import Books
from mpicomp.averaging.ledger import Ledger
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.blocks import BlockMessages, Blocks
from mpicomp.base.errors import MpicompError
from mpicomp.keys import Key
from mpicomp.methods.base import Accumulator, Method


class Sharded(Averaging):
    """Averaging in blocks: each rank averages the blocks that its ``exchange.served`` lists, of all workers.

    Each rank's ledger counts the uplink of its own workers.  Rank 0's ledger is complete after ``settle``.
    """

    def __init__(self, books: Books, plain: Method, blocks: Blocks) -> None:
        """``plain`` is the method of ``books`` before it was put in ``blocks``."""
        super().__init__(books)
        self._plain, self._blocks = plain, blocks
        self.exchange = self.transport.exchange(len(blocks))
        self._methods = {b: self.method.of_block(b) for b in self.exchange.served}
        # Bytes of the hosted workers' messages, and of the broadcasts, since the start.
        self.up_by_block = np.zeros((len(self.transport.hosted), len(blocks)), np.int64)
        self.down_by_block = np.zeros(len(blocks), np.int64)
        self._share = Ledger(self.transport.n)  # the uplink from here that the server's ledger lacks
        # Called first in ``play``: whether this round's messages are sent already.  ``Early`` sets it.
        self.sent_early: Callable[[], bool] = lambda: False

    def slices(self, d: int) -> list[slice]:
        """The slice of each block in a vector in R^d."""
        return self._blocks.slices(d)

    def begin(self, x: Array) -> None:
        slices = self.slices(x.size)
        self.servers = {b: self._plain.server(x[slices[b]]) for b in self.exchange.served}

    def play(
        self, step: WorkerStep, receive: Receive, senders: Sequence[int], replica: Any, key: Key
    ) -> tuple[Any, int, bool]:
        if not self.sent_early():
            self.exchange.send(self._messages(step, senders, key))
        d = self.books.d
        slices = self.slices(d)
        for b in self.exchange.served:
            server_step: Accumulator | None = None
            try:
                with self.exchange.receive(b, senders) as received:
                    self.books.check()
                    with self.transport.clock.phase("server"):
                        own = block_of(replica, slices[b], d)
                        server_step = begun(self._methods[b], self.servers[b], own, key)
                        for i, message in received:
                            self.books.sender = i
                            up: Any = self.books.decoded(self.method.Up, message)
                            server_step.take(key.of(i), up)
                        down = self.books.encoded(server_step.close())
                self.exchange.publish(b, down)
            except MpicompError as error:
                self.exchange.publish(b, self.books.named(first_error(server_step, error)))
        downs, stop = self.exchange.collect()
        self.down_by_block += [len(down) for down in downs]
        return downs, sum(map(len, downs)), stop

    def _messages(
        self, step: WorkerStep, senders: Sequence[int], key: Key
    ) -> dict[int, list[Bytes] | MpicompError]:
        """The messages of each hosted worker, one for each block, charged to this rank's ledger.

        If a worker's step fails, its error stands in place of its messages and of those of later workers.
        """
        sent: dict[int, list[Bytes] | MpicompError] = {}
        own = self.hosted(senders)
        try:
            for i in own:
                with self.transport.clock.phase("compress"):
                    up = step(i)
                    by_block = [self.books.encoded(one) for one in self._split(up)]
                for b, message in enumerate(by_block):
                    self.book(i, b, len(message))
                self.enter(i, up, sum(map(len, by_block)), key)
                sent[i] = by_block
        except MpicompError as error:
            sent |= {i: error for i in own if i not in sent}
        return sent

    def book(self, i: int, b: int, size: int) -> None:
        """Count ``size`` bytes that the hosted worker i sends for block b.

        ``up_by_block`` counts them on every rank.  The ledger counts them here on all ranks but the server:
        its ledger gets them by ``settle``.
        """
        self.up_by_block[i - self.transport.hosted.start, b] += size
        if not self.transport.is_server:
            self.books.ledger.up[self.books.original_ids[i]] += size

    def enter(self, i: int, up: Any, size: int, key: Key) -> None:
        """Charge hosted worker i's message to the share of the ledger that ``settle`` sends to the server.

        ``up`` is None for a message that was dropped after it had been sent.
        """
        if up is None:
            self._share.up[self.books.original_ids[i]] += size
        else:
            self.books.enter(up, key.of(i), size, self._share)

    def _split(self, up: Any) -> Iterator[Any]:
        """Split ``up`` by blocks: for each block, the record with this block of each of its messages."""
        values = {f.name: getattr(up, f.name) for f in fields(up)}
        in_blocks = {name: value for name, value in values.items() if isinstance(value, BlockMessages)}
        for b in range(len(self._blocks)):
            yield replace(up, **{name: value.of_blocks[b] for name, value in in_blocks.items()})

    def decode(self, broadcast: list[Bytes]) -> Any:
        return joined([self.books.decoded(self.method.Down, one) for one in broadcast])

    def states(self) -> dict[str, Any]:
        return {f"server-{b}": server for b, server in self.servers.items()}

    def model(self, name: str) -> Array | None:
        own = {b: kernels.to_host(getattr(server, name)) for b, server in self.servers.items()}
        told: Any = self.transport.collect(own)
        if told is None:
            return None
        found = {b: block for one in told for b, block in one.items()}
        return kernels.to_device(np.concatenate([found[b] for b in range(len(self._blocks))]))

    def unsettled(self) -> dict[str, Any]:
        return {"share": self._share}

    def settle(self) -> None:
        told: Any = self.transport.collect(self._share)
        self._share = Ledger(self._share.n)
        if told is not None:
            for share in told:
                self.books.ledger.add_up(share)

    def booked(self) -> tuple[list[int], int]:
        t, owners = self.transport, self.exchange.owners
        to_each = [0] * t.ranks
        for b, owner in enumerate(owners):
            to_each[owner] += int(self.up_by_block[:, b].sum())
            for rank in self.exchange.receivers(b):
                to_each[rank] += int(self.down_by_block[b])
        to_each[t.rank] = 0
        return to_each, 0


def joined(records: list[Any]) -> Any:
    """Join one record per block into one record, in which each message is a ``BlockMessages``."""
    names = [f.name for f in fields(records[0]) if not isinstance(getattr(records[0], f.name), float)]
    return replace(records[0], **{k: BlockMessages(tuple(getattr(r, k) for r in records)) for k in names})


def block_of(record: Any, where: slice, d: int) -> Any:
    """A copy of ``record`` in which each vector in R^d is replaced by a view of its entries ``where``."""
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    return replace(record, **{k: v[where] for k, v in values.items() if getattr(v, "shape", None) == (d,)})
