"""Play the rounds of a method over a transport, and hold the method's state on this rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.averaging import averaging
from mpicomp.averaging.ledger import Ledger
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.blocks import Blocks
from mpicomp.base.errors import ConfigError, DivergedError, MessageError, MpicompError
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.methods.support.auto_step import with_auto_step
from mpicomp.methods.support.scattering import ScatteringMethod
from mpicomp.problems.objective import Objective
from mpicomp.runtime import checkpoint
from mpicomp.runtime.kept import Kept
from mpicomp.runtime.own_methods import apart, check_senders, check_up, separate, unchanged
from mpicomp.transports import Transport

Update = Callable[[Any, Any, Any, Key], None]  # (method, replica, broadcast, key); changes the replica


def update(method: Method, replica: Any, broadcast: Any, key: Key) -> None:
    """Update the replica from the broadcast by ``method.replica_step``.

    ``Rounds`` calls this function unless it is given another ``update``.
    """
    method.replica_step(replica, broadcast, key)


class Rounds:
    """A method's records on this rank, started at ``x0``; ``play`` plays one round over ``transport``.

    method      the method, with its parameters as numbers
    objectives  f_i by the number of each hosted worker; the mapping may change between rounds
    update      called on every rank with each broadcast, to update the replica
    server      how messages are averaged, one of ``placement.SERVERS``
    blocks      the blocks of x, if every rank averages its share of them; else None

    On the server ``ledger`` is complete once ``settle`` has been called.  On another rank its uplink has the
    hosted workers' messages only.
    """

    def __init__(
        self,
        method: Method,
        x0: Array,
        objectives: Mapping[int, Objective],
        transport: Transport,
        update: Update = update,
        server: str = "shared",
        blocks: Blocks | None = None,
    ) -> None:
        if kernels.device() is not None:
            check_device(method)
        self.method, self.objectives, self.transport = method, objectives, transport
        self.averaging = averaging(server, with_auto_step(method), x0.size, transport, blocks)
        self.books = self.averaging.books
        self.running = self.books.method  # in blocks if there are any, and with what "auto" adds
        self._update = update
        self.begin(x0)

    def begin(self, x: Array) -> None:
        """Start the method anew at x, shape (d,), with the transport's present workers."""
        method = self.running
        self.replica = method.replica(x)
        _check_record(method, self.replica)
        self.averaging.begin(x)
        self.workers = {i: method.worker(x) for i in self.transport.hosted}
        self.books.sender = None
        self.books.fail(None)
        self._kept: Kept | None = None
        if self.method.of_ones_own:
            separate([self.replica, *self.workers.values(), *self.averaging.states().values()])
            self._kept = Kept(self.method, self._own_states())

    # Whatever the program has set: what is not finite is refused by name, and what is too small is 0.
    @np.errstate(over="ignore", under="ignore", invalid="ignore")
    def play(self, key: Key, name: str) -> bool:
        """Play the round of ``key``; error messages call it ``name``.

        Returns whether some rank has asked to stop after it.  Raises a rank's ``MpicompError`` on all ranks.
        """
        t = self.transport
        t.activity = name
        senders = self.running.senders(key)
        if self.method.of_ones_own:
            check_senders(self.running, senders, key)
        step, receive = partial(self._worker_step, key), partial(self._receive, key, name)
        with self._apart(*self.averaging.states().values()):
            broadcast, size, stop = self.averaging.play(step, receive, senders, self.replica, key)
        charged = 0
        with t.clock.phase("decode"):
            try:
                down = self.averaging.decode(broadcast)
                if t.is_server:
                    charged = self.books.charge_down(down, key)
                down = self.running.received(down, self.replica, key)
                with self._apart(self.replica):
                    self._update(self.running, self.replica, down, key)
            except MessageError as error:
                self.books.fail(MpicompError(f"{name}: the broadcast, on rank {t.rank}: {error}"))
        original_ids = self.books.original_ids
        self.ledger.down[original_ids] += size
        self.ledger.paper_bits_down += charged * len(original_ids)
        if self._kept is not None:
            try:
                self._kept.check(self._own_states())
            except ConfigError as error:
                self.books.fail(error)
        return stop

    def check_saved(self) -> None:
        """Raise the error of the last broadcast, or ``ConfigError`` if a method of one's own keeps NaN."""
        self.books.check()
        if self._kept is not None:
            self._kept.check(self._own_states(), every_entry=True)

    def _own_states(self) -> checkpoint.States:
        """The records of this rank: its replica, its workers', and its servers'."""
        return {"replica": self.replica} | self.states()

    def _apart(self, *records: Any) -> AbstractContextManager[None]:
        """``apart`` for a method of one's own, which may share arrays between records."""
        return apart(*records) if self.method.of_ones_own else nullcontext()

    def _worker_step(self, key: Key, i: int) -> Any:
        """The message of the hosted worker i in the round of ``key``, a record ``Up``."""
        self.books.check()
        watch = unchanged(self.replica, self.method) if self.method.of_ones_own else nullcontext()
        try:
            with watch, self._apart(self.workers[i]):
                up = self.running.worker_step(self.workers[i], self.replica, self.objectives[i], key.of(i))
        except DivergedError as error:
            raise DivergedError(f"worker {self.books.original_ids[i]}: {error}") from None
        except MessageError as error:  # of its own message, which an error feedback decodes
            error.worker = i
            raise
        if self.method.of_ones_own:
            check_up(self.method, up)
        return up

    def _receive(self, key: Key, name: str, i: int, message: Bytes) -> None:
        """Give the hosted worker i the server's ``message`` to it alone, in the round of ``key``."""
        method = self.running
        assert isinstance(method, ScatteringMethod)
        try:
            own: Any = self.books.decoded(method.Own, message)
            with self._apart(self.workers[i]):
                method.receive(self.workers[i], own, key.of(i))
        except MessageError as error:
            worker, rank = self.books.original_ids[i], self.transport.rank
            self.books.fail(MpicompError(f"{name}: the message to worker {worker}, on rank {rank}: {error}"))

    @property
    def ledger(self) -> Ledger:
        """The bytes so far.  On the server it is complete once ``settle`` has been called."""
        return self.books.ledger

    def settle(self) -> None:
        """Add the other ranks' counts to the server's ledger; collective."""
        self.averaging.settle()

    @property
    def x(self) -> Array:
        """The iterate, as every rank holds it."""
        return getattr(self.replica, self.method.iterate)

    def model(self) -> Array | None:
        """The model that the method optimises, shape (d,): the iterate or the server's own model; collective.

        A server's own model is returned on the server, None on other ranks.
        """
        return self.x if self.method.model is None else self.averaging.model(self.method.model)

    def model_everywhere(self) -> Array:
        """``model`` on every rank; collective.  Sending it is no part of the method, and not counted."""
        if self.method.model is None:
            return self.x
        own = self.model()
        return kernels.to_device(self.transport.ask_server(lambda: kernels.to_host(own)))

    def states(self) -> checkpoint.States:
        """The records that this rank saves in a checkpoint, by name; the server alone saves the replica.

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
        raise ConfigError(f"{type(method).__name__} runs on the CPU only: use device='cpu' (--device cpu).")
