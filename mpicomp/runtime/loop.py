"""The loop: the only place where a method, a problem and a transport meet."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

import numpy as np

from mpicomp import kernels, messages
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError, DivergedError, MessageError, MpicompError
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.problems.base import Problem
from mpicomp.runtime import checkpoint
from mpicomp.runtime.digest import Digest
from mpicomp.runtime.ledger import Ledger
from mpicomp.runtime.measure import Measured, Measurement, is_float, measure
from mpicomp.transports import Transport

T = TypeVar("T")


class Loop:
    """A method at work on a problem over a transport: the state of a run, and one round of it."""

    def __init__(self, method: Method, problem: Problem, transport: Transport, seed: int) -> None:
        t, n = transport, transport.n
        if kernels.device() is not None and not method.on_device:
            raise ConfigError(f"{type(method).__name__} runs on the CPU only: use --device cpu.")
        self.transport, self.seed = t, seed
        objectives = t.raise_on_all(lambda: {i: problem.objective(i, n) for i in t.hosted})
        self.objectives = {i: Measured(f.on_device(), t.clock, i) for i, f in objectives.items()}
        # From the server, for ranks that started at different points would stay apart.
        x0 = kernels.to_device(t.ask_server(lambda: _start(problem)))
        resolved = t.ask_server(lambda: method.resolve(lambda: problem.constants(n), x0.size, n))
        self.method: Method = resolved
        self.ledger = Ledger(n)
        self.digest = Digest(kernels.to_host(x0))
        self.original_ids = np.arange(n)  # index of a worker here -> its number in the problem
        self._begin(0, x0)

    def _begin(self, k: int, x: Array) -> None:
        """Start the method at x in round k of the run."""
        t, method = self.transport, self.method
        self.method_start_round = k
        self.replica = method.replica(x)
        self.server = method.server(x) if t.is_server else None
        self._before: Array | None = None  # the server's own model at the start of a round under way
        self.workers = {i: method.worker(x) for i in t.hosted}
        self._sender: int | None = None  # the worker whose message the server is processing
        self._failed: MpicompError | None = None  # raised by the last broadcast, perhaps on this rank alone

    @np.errstate(over="ignore", invalid="ignore")  # refused by name: as a gradient that is not finite
    def step(self, k: int) -> bool:
        """Round k.  Returns whether some rank has asked to stop after it."""
        t, method, key = self.transport, self.method, self._key(k)
        t.activity = f"round {k}"
        senders = method.senders(key)
        down: Bytes | None = None
        if t.is_server and method.model is not None:
            self._before = self._own_model().copy()
        try:
            with closing(t.gather(self._uplink(senders, key), senders)) as received:
                if t.is_server:
                    self.check()
                    with t.clock.phase("server"):
                        ups = self._decoded(received, key)
                        mean = method.server_step(self.server, self.replica, ups, key)
                        charged = method.paper_bits_down(mean, self.x.size, key)
                        down = self._for_transport(messages.encode(mean))
        except MpicompError as error:
            if isinstance(error, DivergedError):
                error = DivergedError(f"round {k}: {error} {advice(method)}")
            elif isinstance(error, MessageError):
                error = MessageError(f"round {k}: worker {self.original_ids[self._sender]}: {error}")
            t.fail(error)
            raise error from None
        down, stop = t.broadcast(down)
        with t.clock.phase("decode"):
            _ = self.digest.value  # the iterate before is hashed: it may change
            try:
                method.follow(self.replica, messages.decode(method.Down, kernels.to_device(down)), key)
            except MessageError as error:
                self._failed = MpicompError(f"round {k}: the broadcast, on rank {t.rank}: {error}")
        if t.is_server:
            self.ledger.down[self.original_ids] += len(down)
            self.ledger.paper_bits_down += charged * len(self.original_ids)
            self.digest.update(kernels.to_host(self.x))
            self._before = None
        return stop

    def _key(self, k: int) -> Key:
        """The key of round k.

        After a restart the method counts rounds from 0, under a seed derived for that restart.
        """
        seed = self.seed
        if self.method_start_round:
            seed = Key(seed, self.method_start_round, None, 0).shared("loop/begun").below(2**64)
        return Key(seed, k - self.method_start_round, None, self.transport.n)

    def dismiss(self, lost: Collection[int]) -> None:
        """Drop the workers ``lost`` and renumber the others from 0, in their order."""
        left = [i for i in range(len(self.original_ids)) if i not in lost]
        self.original_ids = self.original_ids[left]
        self.objectives = {j: self.objectives[i] for j, i in enumerate(left) if i in self.objectives}

    def restart(self, k: int) -> None:
        """Restart the method in round k, at the server's model as it was before that round."""
        t = self.transport
        message: Bytes | None = None  # ranks may hold iterates of different rounds
        if t.is_server:
            model = self._own_model() if self._before is None else self._before
            message = self._for_transport(model.view(np.uint8))
        message, _ = t.broadcast(message)
        if t.is_server:
            self.ledger.down[self.original_ids] += len(message)
            self.ledger.paper_bits_down += 32 * self.x.size * len(self.original_ids)
        self._begin(k, kernels.to_device(message).view(self.x.dtype))

    def _uplink(self, senders: Sequence[int], key: Key) -> Iterator[tuple[int, Bytes]]:
        """The hosted senders' messages, each computed when it is asked for."""
        for i in senders:
            if i not in self.workers:
                continue
            self.check()
            w, f = self.workers[i], self.objectives[i]
            try:
                with self.transport.clock.phase("compress"):
                    up = self.method.worker_step(w, self.replica, f, key.of(i))
                    message = self._for_transport(messages.encode(up))
            except DivergedError as error:
                raise DivergedError(f"worker {f.worker}: {error}") from None
            f.meter.owe(self.method.residual(w))
            yield i, message

    def _for_transport(self, message: Bytes) -> Bytes:
        """``message`` in the memory that the transport takes: the device in use, or the host."""
        return message if self.transport.device_buffers else kernels.to_host(message)

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

    @np.errstate(over="ignore", invalid="ignore")
    def observe(self, values: bool = True) -> Measurement | None:
        """f and its gradient at the current model on the server; None on the other ranks.

        Without ``values`` the model and the meters alone: f and its gradient are not computed.
        """
        return measure(self.transport, self.objectives, self.model(), self.check, values)

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

    def model(self) -> Array:
        """The model that the run measures and returns, on every rank: the iterate, or the server's own model.

        Collective.  Sending the model is no part of the method and is counted nowhere.
        """
        if self.method.model is None:
            return self.x
        return kernels.to_device(self.transport.ask_server(lambda: kernels.to_host(self._own_model())))

    def _own_model(self) -> Array:
        """The model that ``model`` gives, on the server without a copy."""
        name = self.method.model
        return self.x if name is None else getattr(self.server, name)

    def states(self) -> checkpoint.States:
        """The records that this rank answers for in a checkpoint; the replica is the server's."""
        own: checkpoint.States = {f"worker-{self.original_ids[i]}": w for i, w in self.workers.items()}
        own |= {f"meter-{self.original_ids[i]}": f.meter for i, f in self.objectives.items()}
        if self.transport.is_server:
            own |= {"replica": self.replica, "server": self.server, "ledger": self.ledger}
        return own


def advice(method: Method) -> str:
    """What to do about a run that diverges."""
    return f"The step size may be too large: {method.step_name}={method.step}; try another."


def _memory() -> float:
    """The bytes of memory of this host."""
    return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")


def _start(problem: Problem) -> Array:
    d = problem.dimension()
    if d < 1:
        raise ConfigError(f"the problem has dimension {d}; allowed: 1 and above.")
    if 8 * d > _memory() / 2:  # an iterate and a gradient at least
        raise ConfigError(
            f"the problem has dimension {d}: a vector takes {8 * d / 1e9:.3g} GB, and this host has "
            f"{_memory() / 1e9:.3g}. Is that the largest index which the data should have?"
        )
    x0 = np.asarray(problem.x0())
    if x0.shape != (d,) or not is_float(x0):
        raise ConfigError(
            f"x0 has shape {x0.shape} and type {x0.dtype}; expected floats of at most 64 bits, shape ({d},)."
        )
    if not np.isfinite(x0).all():
        raise ConfigError(f"x0 is not finite in {np.sum(~np.isfinite(x0))} of its {d} coordinates.")
    return x0
