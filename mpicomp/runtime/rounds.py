"""The rounds of a method over a transport: its state on this rank, and how one round is played."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.averaging import averaging
from mpicomp.averaging.ledger import Ledger
from mpicomp.base.blocks import Blocks
from mpicomp.base.errors import ConfigError, DivergedError, MessageError, MpicompError
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.problems.base import Objective
from mpicomp.runtime import checkpoint
from mpicomp.transports import Transport

Follow = Callable[[Any, Any, Any, Key], None]  # (method, replica, broadcast, key): every rank does the same


def follow(method: Method, replica: Any, broadcast: Any, key: Key) -> None:
    """What a rank does with a broadcast, where nothing takes its place."""
    method.replica_step(replica, broadcast, key)


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
        self.averaging = averaging(server, method, x0.size, transport, blocks)
        self.books = self.averaging.books
        self.running = self.books.method  # the method as it runs here, in blocks if there are any
        self._follow = follow
        self.begin(x0)

    def begin(self, x: Array) -> None:
        """Start the method anew at x, with the workers that there are."""
        method = self.running
        self.replica = method.replica(x)
        _check_record(method, self.replica)
        self.averaging.begin(x)
        self.workers = {i: method.worker(x) for i in self.transport.hosted}
        self.books.sender = None
        self.books.fail(None)

    @np.errstate(over="ignore", invalid="ignore")  # refused by name: as a gradient that is not finite
    def play(self, key: Key, name: str) -> bool:
        """The round of ``key``, called ``name`` in messages.

        Returns whether some rank has asked to stop after it.
        """
        t = self.transport
        t.activity = name
        senders = self.running.senders(key)
        step = partial(self._worker_step, key)
        broadcast, size, stop = self.averaging.play(step, senders, self.replica, key)
        charged = 0
        with t.clock.phase("decode"):
            try:
                down = self.averaging.decode(broadcast)
                if t.is_server:
                    charged = self.running.paper_bits_down(down, self.x.size, key)
                self._follow(self.running, self.replica, down, key)
            except MessageError as error:
                self.books.fail(MpicompError(f"{name}: the broadcast, on rank {t.rank}: {error}"))
        original_ids = self.books.original_ids
        self.ledger.down[original_ids] += size
        self.ledger.paper_bits_down += charged * len(original_ids)
        return stop

    def _worker_step(self, key: Key, i: int) -> Any:
        """The message of the hosted worker i in the round of ``key``, a record ``Up``."""
        self.books.check()
        try:
            return self.running.worker_step(self.workers[i], self.replica, self.objectives[i], key.of(i))
        except DivergedError as error:
            raise DivergedError(f"worker {self.books.original_ids[i]}: {error}") from None
        except MessageError as error:  # of its own message, which an error feedback decodes
            error.worker = i
            raise

    @property
    def ledger(self) -> Ledger:
        """The bytes so far: all of them on the server once ``settle`` has been called."""
        return self.books.ledger

    def settle(self) -> None:
        """Complete the server's ledger; collective."""
        self.averaging.settle()

    @property
    def x(self) -> Array:
        """The iterate, as every rank holds it."""
        return getattr(self.replica, self.method.iterate)

    def model(self) -> Array | None:
        """The model that the method is about, on the server; collective."""
        return self.x if self.method.model is None else self.averaging.model(self.method.model)

    def states(self) -> checkpoint.States:
        """The records that this rank answers for in a checkpoint; the replica is the server's.

        Call ``settle`` before they are saved.
        """
        own: checkpoint.States = {f"worker-{self.books.original_ids[i]}": w for i, w in self.workers.items()}
        if self.transport.is_server:
            own |= {"replica": self.replica, "ledger": self.ledger}
        return own | self.averaging.states()


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
