"""The rounds of a method over a transport: its state on this rank, and how one round is played."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from mpicomp import kernels, messages
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError, DivergedError, MessageError, MpicompError
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.problems.base import Objective
from mpicomp.runtime import checkpoint
from mpicomp.runtime.ledger import Ledger
from mpicomp.transports import Transport

Follow = Callable[[Any, Any, Key], None]  # (replica, broadcast, key): every rank does the same


class Rounds:
    """A method's records, started at ``x0``, and one round after the other over ``transport``.

    method      with its parameters as numbers
    objectives  f_i by the number of each hosted worker; the mapping may change between rounds
    follow      ``Method.follow``, or what takes its place

    ``ledger`` is complete on the server.  Elsewhere its uplink is of the hosted workers alone.
    """

    def __init__(
        self,
        method: Method,
        x0: Array,
        objectives: Mapping[int, Objective],
        transport: Transport,
        follow: Follow | None = None,
    ) -> None:
        if kernels.device() is not None and not method.on_device:
            raise ConfigError(f"{type(method).__name__} runs on the CPU only: use --device cpu.")
        self.method, self.objectives, self.transport = method, objectives, transport
        self.ledger = Ledger(transport.n)
        self.original_ids = np.arange(transport.n)  # a worker's number here -> its number at the start
        self._follow = follow or method.follow
        self.begin(x0)

    def begin(self, x: Array) -> None:
        """Start the method anew at x, with the workers that there are."""
        t, method = self.transport, self.method
        self.replica = method.replica(x)
        self.server = method.server(x) if t.is_server else None
        self.workers = {i: method.worker(x) for i in t.hosted}
        self._sender: int | None = None  # the worker whose message the server is processing
        self._failed: MpicompError | None = None  # raised by the last broadcast, perhaps on this rank alone

    @np.errstate(over="ignore", invalid="ignore")  # refused by name: as a gradient that is not finite
    def play(self, key: Key, name: str) -> bool:
        """The round of ``key``, called ``name`` in messages.

        Returns whether some rank has asked to stop after it.
        """
        t, method = self.transport, self.method
        t.activity = name
        senders = method.senders(key)
        down: Bytes | None = None
        try:
            with closing(t.gather(self._uplink(senders, key), senders)) as received:
                if t.is_server:
                    self.check()
                    with t.clock.phase("server"):
                        ups = self._decoded(received, key)
                        mean = method.server_step(self.server, self.replica, ups, key)
                        charged = method.paper_bits_down(mean, self.x.size, key)
                        down = self.for_transport(messages.encode(mean))
        except MpicompError as error:
            if isinstance(error, DivergedError):
                error = DivergedError(f"{name}: {error} {advice(method)}")
            elif isinstance(error, MessageError):
                error = MessageError(f"{name}: worker {self.original_ids[self._sender]}: {error}")
            t.fail(error)
            raise error from None
        down, stop = t.broadcast(down)
        with t.clock.phase("decode"):
            try:
                self._follow(self.replica, messages.decode(method.Down, kernels.to_device(down)), key)
            except MessageError as error:
                self._failed = MpicompError(f"{name}: the broadcast, on rank {t.rank}: {error}")
        self.ledger.down[self.original_ids] += len(down)
        if t.is_server:
            self.ledger.paper_bits_down += charged * len(self.original_ids)
        return stop

    def check(self) -> None:
        """Raise the error saved from the last broadcast.

        Call it only where the transport reports errors to all ranks.
        """
        if self._failed is not None:
            raise self._failed

    @property
    def x(self) -> Array:
        """The iterate, as every rank holds it."""
        return getattr(self.replica, self.method.iterate)

    def states(self) -> checkpoint.States:
        """The records that this rank answers for in a checkpoint; the replica is the server's."""
        own: checkpoint.States = {f"worker-{self.original_ids[i]}": w for i, w in self.workers.items()}
        if self.transport.is_server:
            own |= {"replica": self.replica, "server": self.server, "ledger": self.ledger}
        return own

    def for_transport(self, message: Bytes) -> Bytes:
        """``message`` in the memory that the transport takes: the device in use, or the host."""
        return message if self.transport.device_buffers else kernels.to_host(message)

    def _uplink(self, senders: Sequence[int], key: Key) -> Iterator[tuple[int, Bytes]]:
        """The hosted senders' messages, each computed when it is asked for."""
        for i in senders:
            if i not in self.workers:
                continue
            self.check()
            try:
                with self.transport.clock.phase("compress"):
                    up = self.method.worker_step(self.workers[i], self.replica, self.objectives[i], key.of(i))
                    message = self.for_transport(messages.encode(up))
            except DivergedError as error:
                raise DivergedError(f"worker {self.original_ids[i]}: {error}") from None
            if not self.transport.is_server:
                self.ledger.up[self.original_ids[i]] += len(message)
            yield i, message

    def _decoded(self, received: Iterator[tuple[int, Bytes]], key: Key) -> Iterator[tuple[Key, Any]]:
        """The received messages, decoded and entered in the ledger."""
        for i, message in received:
            self._sender = i
            up: Any = messages.decode(self.method.Up, kernels.to_device(message))
            self.ledger.up[self.original_ids[i]] += len(message)
            if key.round < self.method.setup_rounds:
                self.ledger.set_up_bytes += len(message)
            self.ledger.paper_bits_up += self.method.paper_bits(up, self.x.size, key.of(i))
            yield key.of(i), up


def advice(method: Method) -> str:
    """What to do about a run that diverges."""
    return f"The step size may be too large: {method.step_name}={method.step}; try another."
