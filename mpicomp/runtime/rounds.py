"""The rounds of a method over a transport: its state on this rank, and how one round is played."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.base.bits import Bytes
from mpicomp.base.blocks import Blocks
from mpicomp.base.errors import ConfigError, DivergedError, MessageError, MpicompError
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.problems.base import Objective
from mpicomp.runtime import checkpoint
from mpicomp.runtime.ledger import Ledger
from mpicomp.runtime.serving import serving
from mpicomp.transports import Transport

Follow = Callable[[Any, Any, Any, Key], None]  # (method, replica, broadcast, key): every rank does the same


def follow(method: Method, replica: Any, broadcast: Any, key: Key) -> None:
    """What a rank does with a broadcast, where nothing takes its place."""
    method.follow(replica, broadcast, key)


class Rounds:
    """A method's records, started at ``x0``, and one round after the other over ``transport``.

    method      with its parameters as numbers
    objectives  f_i by the number of each hosted worker; the mapping may change between rounds
    follow      what every rank does with a broadcast
    server      the ranks that average, one of ``placement.SERVERS``
    blocks      the blocks of x, if ranks serve one each

    ``ledger`` is complete on the server, once ``settle`` has been called.  Elsewhere its uplink is of the
    hosted workers alone.
    """

    def __init__(
        self,
        method: Method,
        x0: Array,
        objectives: Mapping[int, Objective],
        transport: Transport,
        follow: Follow = follow,
        server: str = "shared",
        blocks: Blocks | None = None,
    ) -> None:
        if kernels.device() is not None:
            check_device(method)
        self.method, self.objectives, self.transport = method, objectives, transport
        self.serving = serving(server, method, transport, blocks)
        self.running = self.serving.running  # the method as it runs here, in blocks if there are any
        self.ledger = Ledger(transport.n)
        self.original_ids = np.arange(transport.n)  # a worker's number here -> its number at the start
        self._follow = follow
        self.begin(x0)

    def begin(self, x: Array) -> None:
        """Start the method anew at x, with the workers that there are."""
        method = self.running
        self.replica = method.replica(x)
        _check_record(method, self.replica)
        self.serving.begin(x)
        self.workers = {i: method.worker(x) for i in self.transport.hosted}
        self.sender: int | None = None  # the worker whose message a server has taken last
        self._failed: MpicompError | None = None  # raised by the last broadcast, perhaps on this rank alone

    @np.errstate(over="ignore", invalid="ignore")  # refused by name: as a gradient that is not finite
    def play(self, key: Key, name: str) -> bool:
        """The round of ``key``, called ``name`` in messages.

        Returns whether some rank has asked to stop after it.
        """
        t = self.transport
        t.activity = name
        senders = self.running.senders(key)
        broadcast, size, stop = self.serving.play(self, self._uplink(senders, key), senders, key)
        charged = 0
        with t.clock.phase("decode"):
            try:
                down = self.serving.decode(broadcast)
                if t.is_server:
                    charged = self.running.paper_bits_down(down, self.x.size, key)
                self._follow(self.running, self.replica, down, key)
            except MessageError as error:
                self._failed = MpicompError(f"{name}: the broadcast, on rank {t.rank}: {error}")
        self.ledger.down[self.original_ids] += size
        self.ledger.paper_bits_down += charged * len(self.original_ids)
        return stop

    def fail(self, error: MpicompError) -> None:
        """Have ``check`` raise ``error``, until ``mend``."""
        self._failed = error

    def mend(self) -> None:
        """Go on: all records are as they were when they were saved together."""
        self._failed = None

    @property
    def sound(self) -> bool:
        """Whether ``check`` raises nothing."""
        return self._failed is None

    def check(self) -> None:
        """Raise the error saved from the last broadcast, or by ``fail``.

        Call it only where the transport reports errors to all ranks.
        """
        if self._failed is not None:
            raise self._failed

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

    def enter(self, ledger: Ledger, up: Any, key: Key, size: int) -> None:
        """Enter in ``ledger`` the message ``up`` of the worker of ``key``, of ``size`` bytes."""
        ledger.up[self.original_ids[key.worker]] += size
        if key.round < self.method.setup_rounds:
            ledger.set_up_bytes += size
        ledger.paper_bits_up += self.running.paper_bits(up, self.x.size, key)

    def settle(self) -> None:
        """Complete the server's ledger; collective."""
        self.serving.settle(self)

    @property
    def x(self) -> Array:
        """The iterate, as every rank holds it."""
        return getattr(self.replica, self.method.iterate)

    def model(self) -> Array | None:
        """The model that the method is about, on the server; collective."""
        return self.x if self.method.model is None else self.serving.model(self.method.model)

    def states(self) -> checkpoint.States:
        """The records that this rank answers for in a checkpoint; the replica is the server's.

        Call ``settle`` before they are saved.
        """
        own: checkpoint.States = {f"worker-{self.original_ids[i]}": w for i, w in self.workers.items()}
        if self.transport.is_server:
            own |= {"replica": self.replica, "ledger": self.ledger}
        return own | self.serving.states()

    def for_transport(self, message: Bytes) -> Bytes:
        """``message`` in the memory that the transport takes: the device in use, or the host."""
        return message if self.transport.device_buffers else kernels.to_host(message)

    def _uplink(self, senders: Sequence[int], key: Key) -> Iterator[tuple[int, Any]]:
        """The hosted senders' records, each computed when it is asked for."""
        for i in senders:
            if i not in self.workers:
                continue
            self.check()
            try:
                with self.transport.clock.phase("compress"):
                    up = self.running.worker_step(
                        self.workers[i], self.replica, self.objectives[i], key.of(i)
                    )
            except DivergedError as error:
                raise DivergedError(f"worker {self.original_ids[i]}: {error}") from None
            yield i, up


def _check_record(method: Method, record: Any) -> None:
    """Raise ``ConfigError`` unless the fields of ``record`` can be compared between ranks, and saved."""
    for f in fields(record):
        value = getattr(record, f.name)
        if not (kernels.on_device(value) or isinstance(value, np.ndarray | np.generic | int | float)):
            name = f"{type(method).__name__}.{type(record).__name__}.{f.name}"
            raise ConfigError(f"{name} is {value!r:.60}; allowed: arrays and numbers.")


def check_device(method: Method) -> None:
    """Raise ``ConfigError`` for a method that runs on the CPU only."""
    if not method.on_device:
        raise ConfigError(f"{type(method).__name__} runs on the CPU only: use --device cpu.")


def advice(method: Method) -> str:
    """What to do about a run that diverges."""
    return f"The step size may be too large: {method.step_name}={method.step}; try another."
