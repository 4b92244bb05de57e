"""The loop of a run: plays the rounds of a method on a problem over a transport.

It is the only place where these three meet.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.averaging import Root
from mpicomp.averaging.ledger import Ledger
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.blocks import Blocks
from mpicomp.base.errors import ConfigError
from mpicomp.base.given_arrays import as_array, refuse_nonfinite
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.methods.support.scattering import ScatteringMethod
from mpicomp.problems.base import Problem, constants_of, objective_of, parts_of
from mpicomp.problems.objective import Objective
from mpicomp.runtime import checkpoint
from mpicomp.runtime.digest import Digest
from mpicomp.runtime.measure import Measured, Measurement, is_float, measure
from mpicomp.runtime.rounds import Rounds
from mpicomp.transports import Transport


class Loop:
    """The rounds of ``method`` on ``problem`` over ``transport``, with the measurements that a run takes."""

    def __init__(
        self,
        method: Method,
        problem: Problem,
        transport: Transport,
        seed: int,
        x0: Array | None = None,
        server: str = "shared",
        blocks: int = 1,
    ) -> None:
        """Start the method; collective.

        x0      the starting point, shape (d,); None: the problem's own
        server  how messages are averaged, one of ``placement.SERVERS``
        blocks  the number of blocks that x is cut into, each averaged by one rank
        """
        t, n = transport, transport.n
        self.transport, self.seed = t, seed
        objectives = t.raise_on_all(lambda: _objectives(problem, t))
        self.objectives = {i: Measured(f.on_device(), t.clock, i) for i, f in objectives.items()}
        # Broadcast by the server: ranks that started at different points would stay apart.
        start = kernels.to_device(t.ask_server(lambda: start_of(problem, x0)))
        parts = t.raise_on_all(lambda: parts_of(problem))
        cut = Blocks.cut(parts, blocks) if blocks > 1 else None
        resolved = t.ask_server(
            lambda: method.bound(parts).resolve(lambda: constants_of(problem, n), start.size, n, cut)
        )
        rounds = partial(Rounds, resolved, start, self.objectives, t, self._update, server, cut)
        self.rounds = t.raise_on_all(rounds)
        self.server_name, self.blocks = server, 1 if cut is None else len(cut)
        self.digest = Digest(kernels.to_host(start))
        self._begin(0)

    def _begin(self, k: int) -> None:
        """The method starts in round k of the run."""
        self.method_start_round = k
        self._before: Array | None = None  # the server's own model at the start of the current round

    def step(self, k: int) -> bool:
        """Play round k.  Returns whether some rank has asked to stop after it."""
        key = self._key(k)
        if self.method.model is not None and isinstance(self.rounds.averaging, Root):
            model = self.rounds.model()
            self._before = None if model is None else model.copy()
        stop = self.rounds.play(key, f"round {k}")
        for i in self.method.senders(key):
            if i in self.objectives:
                self.objectives[i].meter.owe(self.method.residual(self.rounds.workers[i]))
        if self.transport.is_server and self.rounds.books.sound:  # else x may be anything
            self.digest.update(kernels.to_host(self.x))
            self._before = None
        return stop

    def _update(self, method: Method, replica: Any, broadcast: Any, key: Key) -> None:
        _ = self.digest.value  # the iterate before is hashed: it may change
        method.replica_step(replica, broadcast, key)

    def _key(self, k: int) -> Key:
        """The key of round k.

        After a restart the method counts rounds from 0, under a seed derived for that restart.
        """
        seed = self.seed
        if self.method_start_round:
            seed = Key(seed, self.method_start_round, None, 0).shared("loop/begun").below(2**64)
        return Key(seed, k - self.method_start_round, None, self.transport.n)

    def dismiss(self, lost: Collection[int]) -> None:
        """Drop the workers ``lost``, of dead ranks, and renumber the others from 0, in their old order."""
        left = [i for i in range(len(self.original_ids)) if i not in lost]
        self.rounds.books.original_ids = self.original_ids[left]
        self.objectives = {j: self.objectives[i] for j, i in enumerate(left) if i in self.objectives}
        self.rounds.objectives = self.objectives

    def restart(self, k: int) -> None:
        """Restart the method in round k, at the server's model as it was before that round."""
        t = self.transport
        message: Bytes | None = None  # ranks may hold iterates of different rounds
        model = self.rounds.model() if self._before is None else self._before
        if model is not None and t.is_server:
            message = self.rounds.books.outgoing(model.view(np.uint8))
        message, _ = t.broadcast(message)
        if t.is_server:
            self.ledger.down[self.original_ids] += len(message)
            self.ledger.paper_bits_down += 32 * self.x.size * len(self.original_ids)
        self.rounds.begin(kernels.to_device(message).view(self.x.dtype))
        self._begin(k)

    @np.errstate(over="ignore", under="ignore", invalid="ignore")
    def observe(self, values: bool = True) -> Measurement | None:
        """Measure f and its gradient at the current model; returned on the server, None on other ranks.

        With ``values`` False, return only the model and the meters, without computing f and its gradient.
        Collective.  Afterwards the server's ledger is complete.
        """
        if self.method.of_ones_own:  # what it has left may be no model
            self.transport.raise_on_all(self.rounds.check_saved)
        self.rounds.settle()
        return measure(self.transport, self.objectives, self.model(), self.rounds.books.check, values)

    @property
    def method(self) -> Method:
        """The method, with its parameters as numbers."""
        return self.rounds.method

    @property
    def replica(self) -> Any:
        """The method's record that is equal on all ranks."""
        return self.rounds.replica

    @property
    def server(self) -> Any:
        """The server's record on rank 0; None on other ranks, and if every rank averages its blocks."""
        return self.rounds.averaging.states().get("server")

    @property
    def workers(self) -> dict[int, Any]:
        """The records of the workers hosted here."""
        return self.rounds.workers

    @property
    def ledger(self) -> Ledger:
        """The bytes so far, on the server."""
        return self.rounds.ledger

    @property
    def original_ids(self) -> NDArray[np.intp]:
        """The original number of each worker, as the problem knows it; they change when ranks die."""
        return self.rounds.books.original_ids

    @property
    def x(self) -> Array:
        """The iterate, as every rank holds it.

        Of a ``ScatteringMethod`` the server has it alone; another rank has the last one sent to all.
        """
        if isinstance(self.method, ScatteringMethod) and self.transport.is_server:
            model = self.rounds.model()
            assert model is not None
            return model
        return self.rounds.x

    def model(self) -> Array:
        """The model that the run measures and returns, on every rank: ``Rounds.model_everywhere``."""
        return self.rounds.model_everywhere()

    def states(self) -> checkpoint.States:
        """The records that this rank saves in a checkpoint, by name; the server alone saves the replica."""
        meters = {f"meter-{self.original_ids[i]}": f.meter for i, f in self.objectives.items()}
        return self.rounds.states() | meters


def _memory() -> float:
    """The bytes of memory of this host."""
    return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")


def _objectives(problem: Problem, t: Transport) -> dict[int, Objective]:
    """The f_i of the hosted workers.  Raises ``ConfigError`` if the problem gives none.

    An f_i may hold a vector; so the dimension is checked before.
    """
    _dimension(problem)
    return {i: objective_of(problem, i, t.n) for i in t.hosted}


def _dimension(problem: Problem) -> int:
    """The problem's dimension.  Raises ``ConfigError`` if it is none, or too large for this host."""
    d = problem.dimension()
    if isinstance(d, bool) or not hasattr(d, "__index__") or np.ndim(d) or d < 1:
        raise ConfigError(f"the problem has dimension {d!r}; allowed: an integer, 1 and above.")
    if 8 * d > _memory() / 2:  # an iterate and a gradient at least
        raise ConfigError(
            f"the problem has dimension {d}: a vector takes {8 * d / 1e9:.3g} GB, and this host has "
            f"{_memory() / 1e9:.3g}. Is that the largest index which the data should have?"
        )
    return d


def start_of(problem: Problem, x0: Array | None) -> Array:
    """``x0``, or the problem's own if it is None, in double precision or else in single precision.

    Raises ``ConfigError`` if a run cannot start there.
    """
    d = _dimension(problem)
    x0 = as_array("x0", problem.x0() if x0 is None else x0)
    if x0.shape != (d,) or not is_float(x0):
        raise ConfigError(
            f"x0 has shape {x0.shape} and type {x0.dtype}; expected floats of at most 64 bits, shape ({d},)."
        )
    refuse_nonfinite("x0", x0)
    # As of tensors, 16 bits become 32: most steps would vanish beside x.
    return x0.astype(np.result_type(x0.dtype, np.float32), copy=False)
