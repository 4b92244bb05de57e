"""The loop: the only place where a method, a problem and a transport meet."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

import numpy as np

from mpicomp import checkpoint, kernels, messages
from mpicomp.coding.bits import Bytes
from mpicomp.compressors.base import Array
from mpicomp.digest import Digest
from mpicomp.errors import ConfigError, DivergedError, MessageError, MpicompError
from mpicomp.keys import Key
from mpicomp.ledger import Ledger
from mpicomp.measure import Measured, Measurement, measure
from mpicomp.methods.base import Method
from mpicomp.problems.base import Problem
from mpicomp.transports import Transport

T = TypeVar("T")


class Loop:
    """A method at work on a problem over a transport: the state of a run, and one round of it."""

    def __init__(self, method: Method, problem: Problem, transport: Transport, seed: int) -> None:
        t, n = transport, transport.n
        if kernels.device() is not None and not method.on_device:
            raise ConfigError(f"{type(method).__name__} runs on the CPU only: use --device cpu.")
        self.transport, self.seed = t, seed
        objectives = t.together(lambda: {i: problem.objective(i, n) for i in t.hosted})
        self.objectives = {i: Measured(f.on_device(), t.clock, i) for i, f in objectives.items()}
        x0 = kernels.put(self._from_server(lambda: _start(problem)))
        resolved = self._from_server(lambda: method.resolve(lambda: problem.constants(n), x0.size, n))
        self.method: Method = resolved
        self.ledger = Ledger(n)
        self.digest = Digest(kernels.host(x0))
        self.crew = np.arange(n)  # the workers at work, by the numbers that they have in the problem
        self._begin(0, x0)

    def _begin(self, k: int, x: Array) -> None:
        """Let the method begin at x in round k of the run."""
        t, method = self.transport, self.method
        self.begun = k
        self.replica = method.replica(x)
        self.server = method.server(x) if t.is_server else None
        self.workers = {i: method.worker(x) for i in t.hosted}
        self._sender: int | None = None  # whose message the server is at
        self._failed: MpicompError | None = None  # met in a broadcast, perhaps by this rank alone

    def _from_server(self, compute: Callable[[], T]) -> T:
        """What ``compute`` gives on the server, on every rank: ranks that start apart stay apart."""
        t = self.transport
        result = t.together(lambda: compute() if t.is_server else None)
        return pickle.loads(t.tell(pickle.dumps(result) if t.is_server else None))

    @np.errstate(over="ignore", invalid="ignore")  # refused by name: as a gradient that is not finite
    def step(self, k: int) -> bool:
        """Round k.  Returns whether some rank has asked to stop after it."""
        t, method, key = self.transport, self.method, self._key(k)
        t.doing = f"round {k}"
        senders = method.senders(key)
        down: Bytes | None = None
        try:
            with closing(t.gather(self._uplink(senders, key), senders)) as received:
                if t.is_server:
                    self.check()
                    with t.clock.phase("server"):
                        ups = self._decoded(received, key)
                        mean = method.server_step(self.server, self.replica, ups, key)
                        down = self._handed(messages.encode(mean))
        except MpicompError as error:
            if isinstance(error, DivergedError):
                error = DivergedError(f"round {k}: {error} {advice(method)}")
            elif isinstance(error, MessageError):
                error = MessageError(f"round {k}: worker {self.crew[self._sender]}: {error}")
            t.fail(error)
            raise error from None
        down, stop = t.broadcast(down)
        with t.clock.phase("decode"):
            _ = self.digest.value  # the iterate before is hashed: it may change
            try:
                method.follow(self.replica, messages.decode(method.Down, kernels.put(down)), key)
            except MessageError as error:
                self._failed = MpicompError(f"round {k}: the broadcast, on rank {t.rank}: {error}")
        if t.is_server:
            self.ledger.down[self.crew] += len(down)
            self.digest.update(kernels.host(self.x))
        return stop

    def _key(self, k: int) -> Key:
        """The key of round k of the run.  A method that began later is in its own, with draws of its own."""
        seed = self.seed
        if self.begun:
            seed = Key(seed, self.begun, None, 0).shared("loop/begun").below(2**64)
        return Key(seed, k - self.begun, None, self.transport.n)

    def dismiss(self, lost: Collection[int]) -> None:
        """Number the workers anew, from 0 and in their order, without those that are ``lost``."""
        left = [i for i in range(len(self.crew)) if i not in lost]
        self.crew = self.crew[left]
        self.objectives = {j: self.objectives[i] for j, i in enumerate(left) if i in self.objectives}

    def restart(self, k: int) -> None:
        """Let the method begin anew in round k at the server's x."""
        t = self.transport
        # Ranks may differ by the round in which one was lost.
        message, _ = t.broadcast(self._handed(self.x.view(np.uint8)) if t.is_server else None)
        if t.is_server:
            self.ledger.down[self.crew] += len(message)
        self._begin(k, kernels.put(message).view(self.x.dtype))

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
                    message = self._handed(messages.encode(up))
            except DivergedError as error:
                raise DivergedError(f"worker {f.worker}: {error}") from None
            f.meter.owe(self.method.residual(w))
            yield i, message

    def _handed(self, message: Bytes) -> Bytes:
        """``message`` where the transport takes it: on the device in use, or on the host."""
        return message if self.transport.device_buffers else kernels.host(message)

    def _decoded(self, received: Iterator[tuple[int, Bytes]], key: Key) -> Iterator[tuple[Key, Any]]:
        """What arrived, decoded and entered in the ledger."""
        for i, message in received:
            self._sender = i
            up: Any = messages.decode(self.method.Up, kernels.put(message))
            self.ledger.up[self.crew[i]] += len(message)
            if key.round < self.method.set_up:
                self.ledger.set_up_bytes += len(message)
            self.ledger.paper_bits_up += self.method.paper_bits(up, self.x.size, key.of(i))
            yield key.of(i), up

    @np.errstate(over="ignore", invalid="ignore")
    def observe(self) -> Measurement | None:
        """f and its gradient at the current iterate; None but on the server."""
        return measure(self.transport, self.objectives, self.x, self.check)

    def check(self) -> None:
        """Raise what this rank met in the last broadcast: from where the others hear of it."""
        if self._failed is not None:
            raise self._failed

    @property
    def x(self) -> Array:
        """The iterate, as every rank holds it."""
        return getattr(self.replica, self.method.iterate)

    def states(self) -> checkpoint.States:
        """The records that this rank answers for in a checkpoint; the replica is the server's."""
        own: checkpoint.States = {f"worker-{self.crew[i]}": w for i, w in self.workers.items()}
        own |= {f"meter-{self.crew[i]}": f.meter for i, f in self.objectives.items()}
        if self.transport.is_server:
            own |= {"replica": self.replica, "server": self.server, "ledger": self.ledger}
        return own


def advice(method: Method) -> str:
    """What to do about a run that diverges."""
    return f"The step size may be too large: {method.steps[0]}={method.step}; try another."


def _start(problem: Problem) -> Array:
    x0, d = np.asarray(problem.x0()), problem.dimension()
    if d < 1:
        raise ConfigError(f"the problem has dimension {d}; allowed: 1 and above.")
    if x0.shape != (d,) or x0.dtype.kind != "f":
        raise ConfigError(f"x0 has shape {x0.shape} and type {x0.dtype}; expected floats of shape ({d},).")
    if not np.isfinite(x0).all():
        raise ConfigError(f"x0 is not finite in {np.sum(~np.isfinite(x0))} of its {d} coordinates.")
    return x0
