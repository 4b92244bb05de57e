"""A worker's step for one block after the other, on a copy of its state."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

from mpicomp.averaging.sharded import block_of
from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.problems.objective import Objective
from mpicomp.runtime.own_methods import check_up
from mpicomp.runtime.rounds import Rounds


class TentativeSteps:
    """The steps of the hosted ``worker`` of ``rounds``; ``commit`` makes the copy its state.

    method  the method in blocks
    slices  the slice of each block in a vector, shape (d,)
    """

    def __init__(self, rounds: Rounds, method: Method, worker: int, slices: Sequence[slice]) -> None:
        self._rounds, self._worker, self._slices = rounds, worker, slices
        self._methods = [method.of_block(b) for b in range(len(slices))]
        self._next = deepcopy(rounds.workers[worker])  # the state after the round

    def step(self, b: int, gradient: Array, key: Key) -> Any:
        """The worker's message of block b, a record ``Up``; ``gradient`` is that block of its gradient."""
        rounds, where, d = self._rounds, self._slices[b], self._rounds.x.size
        now = rounds.workers[self._worker]
        others = {}  # numbers, and arrays of other shapes, with which each block's step begins anew
        for f in fields(now):
            if _is_vector(value := getattr(now, f.name), d):
                getattr(self._next, f.name)[where] = value[where]
            else:
                others[f.name] = deepcopy(value)
        own = replace(block_of(self._next, where, d), **others)
        views = {f.name: getattr(own, f.name) for f in fields(own)}
        up = self._methods[b].worker_step(
            own, block_of(rounds.replica, where, d), OfBlock(gradient), key.of(self._worker)
        )
        if rounds.method.of_ones_own:
            check_up(rounds.method, up)
        for name, view in views.items():
            value = getattr(own, name)
            if name in others:
                setattr(self._next, name, value)
            elif value is not view:
                view[:] = value
        return up

    def commit(self) -> None:
        """Make the copy the worker's state; every block has had its step."""
        workers, i = self._rounds.workers, self._worker
        workers[i], self._next = self._next, workers[i]


def _is_vector(value: Any, d: int) -> bool:
    """Whether a field of a worker's state is a vector in R^d, on the host or a device: blocks have slices."""
    return getattr(value, "shape", ()) == (d,)


class OfBlock(Objective):
    """The objective of one block: only its gradient at the point of this round is known."""

    def __init__(self, gradient: Array) -> None:
        self._gradient = gradient

    def value(self, x: Array) -> float:
        raise ConfigError("a gradient alone has no value f_i(x).")

    def grad(self, x: Array) -> Array:
        return self._gradient

    def batch_grad(self, x: Array, b: int, stream: Any) -> Array:
        raise ConfigError("the method has a batch, but the samples are yours to choose: leave batch out.")
