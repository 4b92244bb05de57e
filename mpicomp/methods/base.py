"""A method: three records of state and the three steps of a round.

Theory of operation.  A round is one message up and one message down::

    up_i  =  worker_step(w_i, r, f_i)      worker i -> server
    down  =  server_step(s, r, ups)        server -> every rank
             follow(r, down)               every rank, the server's included

``Replica`` is held by every rank, bit for bit: the iterate x, and every vector that follows from the
averaged messages (DIANA's h, EF21's g).  Only ``follow`` changes it, from the decoded broadcast, so the
ranks cannot drift apart, and the server uses the vector that its workers decoded.  ``Worker`` and
``Server`` are private.  A step changes only its own record.  Records hold only arrays and numbers, so a
checkpoint is the saved records.  Methods know no transport and do no I/O.
"""

from __future__ import annotations

from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Self, get_args, get_type_hints

import numpy as np

from mpicomp.base.bits import Bytes
from mpicomp.compressors.base import Array, check_count, check_probability
from mpicomp.keys import Key
from mpicomp.methods.support.checks import Step, check_step, require, step_factor
from mpicomp.methods.support.starts import check_start
from mpicomp.problems.base import Constants, Objective


@dataclass
class Message:
    """The record that most methods send: one compressed vector."""

    m: Bytes


@dataclass
class Nothing:
    """The record of a server or worker without state."""


@dataclass(frozen=True)
class Method(ABC):
    """A frozen dataclass of hyper-parameters; nested ``Replica``, ``Server`` and ``Worker`` records.

    ``Up`` and ``Down`` are the records on the wire.  All arrays of the state start at 0, except the iterate
    and the fields in ``at_x0``, which start at x0.
    """

    recalled: ClassVar[str] = ""  # what was written from memory, not checked against the paper
    paper: ClassVar[str]
    steps: ClassVar[tuple[str, ...]] = ("gamma",)  # what may say "theory"; first the step size
    inverse_step: ClassVar[bool] = False  # whether the step size is given as its inverse, as 2Direction's L̄
    fractions: ClassVar[tuple[str, ...]] = ()  # what lies in (0, 1], or is None for its default
    zeros: ClassVar[tuple[str, ...]] = ()  # of these two, what may be 0
    counts: ClassVar[tuple[str, ...]] = ()  # what is a count, a fraction below 1 of all, or None for all
    starts: ClassVar[tuple[str, ...]] = ()  # what ``start`` may be, in methods that have it
    iterate: ClassVar[str] = "x"  # the replica's field that a run hashes, measures and returns
    model: ClassVar[str | None] = None  # the server's field that a run measures and returns instead
    at_x0: ClassVar[tuple[str, ...]] = ()  # fields of records that start at x0
    on_device: ClassVar[bool] = True  # whether its vectors may be on a GPU
    set_up: ClassVar[int] = 0  # rounds before the first step; the ledger also counts their uplink apart
    Replica: ClassVar[type]
    Server: ClassVar[type] = Nothing
    Worker: ClassVar[type] = Nothing
    Up: ClassVar[type] = Message
    Down: ClassVar[type] = Message

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for a compressor of the wrong class, or a number out of range."""
        for name, kinds in _compressors(type(self)).items():
            require(type(self).__name__, name, getattr(self, name), *kinds)
        for name in self.steps:
            if not (name in self.zeros and getattr(self, name) == 0):
                check_step(name, getattr(self, name))
        for name in self.fractions:
            value = getattr(self, name)
            theory = name in self.steps and isinstance(value, str)
            if not (value is None or theory or (name in self.zeros and value == 0)):
                check_probability(name, value)
        for name in self.counts:
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name)
        if self.starts:
            check_start(type(self).__name__, vars(self)["start"], self.starts)

    def replica(self, x0: Array) -> Any:
        """The replica at the start, the same on every rank; ``x0`` has shape (d,)."""
        return start(self.Replica, x0, (self.iterate, *self.at_x0))

    def server(self, x0: Array) -> Any:
        """The server's private state at the start."""
        return start(self.Server, x0, self.at_x0)

    def worker(self, x0: Array) -> Any:
        """A worker's private state at the start."""
        return start(self.Worker, x0, self.at_x0)

    def senders(self, key: Key) -> Sequence[int]:
        """The workers that take part in the round of ``key``, increasing, the same on every rank."""
        return range(key.n)

    @abstractmethod
    def worker_step(self, w: Any, r: Any, f: Objective, key: Key) -> Any:
        """Compute the message of the worker of ``key``, a record ``Up``; this changes ``w`` only."""

    @abstractmethod
    def server_step(self, s: Any, r: Any, ups: Iterable[tuple[Key, Any]], key: Key) -> Any:
        """Compute the broadcast, a record ``Down``; this changes ``s`` only.

        ``ups`` yields (the sender's key, its message) in worker order, lazily, and can be read once.  The
        bytes of a message are valid until the next message is asked for.
        """

    @abstractmethod
    def follow(self, r: Any, down: Any, key: Key) -> None:
        """Update the replica ``r`` from the broadcast; every rank does the same."""

    def residual(self, w: Any) -> Array | None:
        """The part of the last vector that compression left out, as a gradient; None if it is not kept."""
        return None

    @abstractmethod
    def paper_bits(self, up: Any, d: int, key: Key) -> int:
        """The bits that the paper charges for the message ``up`` of the worker of ``key``."""

    @abstractmethod
    def paper_bits_down(self, down: Any, d: int, key: Key) -> int:
        """The bits that the paper charges for sending ``down`` to one worker in the round of ``key``."""

    def defaults(self, d: int, n: int) -> dict[str, float]:
        """Values for fields left at None.  They follow from the compressors, d and n alone."""
        return {}

    @abstractmethod
    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        """Values for fields that say "theory": those of the theorem that the class cites.

        Raises ``ConfigError`` where the theorem does not apply, and says what would.
        """

    @property
    def step(self) -> Step:
        """The step size that tuning scales, whatever its name in the paper."""
        return getattr(self, self.steps[0])

    def with_step(self, value: Step) -> Self:
        """This method with the step size ``value``."""
        return replace(self, **{self.steps[0]: value})

    def resolve(self, constants: Callable[[], Constants], d: int, n: int) -> Self:
        """This method with every parameter a number.  Calls ``constants`` only if a field says "theory"."""
        open_fields = [f.name for f in fields(self) if getattr(self, f.name) is None]
        defaults = self.defaults(d, n) if open_fields else {}
        method = replace(self, **{name: defaults[name] for name in open_fields if name not in self.counts})
        asked = {name: getattr(self, name) for name in self.steps}
        asked = {name: value for name, value in asked.items() if isinstance(value, str)}
        if not asked:
            return method
        numbers = method.theory(constants(), d, n)
        return replace(method, **{k: step_factor(k, v) * numbers[k] for k, v in asked.items()})


def start(record: type, x0: Array, at_x0: tuple[str, ...] = ()) -> Any:
    """A ``record`` whose arrays are 0, or x0 if named in ``at_x0``; other fields have their defaults."""
    names = [f.name for f in fields(record) if f.default is MISSING]
    return record(**{name: x0.copy() if name in at_x0 else np.zeros_like(x0) for name in names})


@cache
def _compressors(method: type[Method]) -> dict[str, tuple[type, ...]]:
    """The fields of ``method`` that are compressors, and the classes that each is declared to take."""
    hints = get_type_hints(method)
    declared = {f.name: hints[f.name] for f in fields(method)}
    kinds = {name: get_args(h) if isinstance(h, UnionType) else (h,) for name, h in declared.items()}
    return {n: ks for n, ks in kinds.items() if all(isinstance(k, ABCMeta) for k in ks)}
