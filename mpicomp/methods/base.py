"""What a method is: three records of state and the three steps of a round.

Theory of operation.  A round is one message up and one down::

    up_i       =  worker_step(w_i, r, f_i)      worker i -> server
    broadcast  =  server_step(s, r, ups)        server -> every rank
                  follow(r, broadcast)          every rank, the server's included

``Replica`` is what every rank holds, bit for bit: the iterate x, and whatever the averaged messages
let everyone track (DIANA's h, EF21's g).  It changes in ``follow`` alone, from the decoded broadcast,
so ranks cannot drift apart and the server uses the very vector that its workers decoded.  ``Worker``
and ``Server`` are private.  A step changes only its own record, and records hold nothing but arrays
and numbers, so a checkpoint is the saved records.  Methods know no transport and do no I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from mpicomp.base.bits import Bytes
from mpicomp.base.checks import theory_factor
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.parameters import checks_of, step_size_of
from mpicomp.problems.base import Constants, Objective


@dataclass
class Message:
    """The usual record on the wire: one compressed vector."""

    m: Bytes


@dataclass
class Nothing:
    """The state of a side that has none."""


@dataclass(frozen=True)
class Method(ABC):
    """A frozen dataclass of hyper-parameters; nested ``Replica``, ``Server`` and ``Worker`` records.

    The types of the fields say what is allowed, see ``methods.parameters``; one field is the step size.
    ``Up`` and ``Down`` are the records on the wire.  Records start at zero, but the iterate and the fields
    in ``starts_at_x0`` at x0.
    """

    paper: ClassVar[str]
    inverse_step: ClassVar[bool] = False  # whether the step size is given as its inverse, as 2Direction's L̄
    iterate: ClassVar[str] = "x"  # the replica's field that a run hashes, measures and gives back
    model: ClassVar[str | None] = None  # the server's field that it measures and gives back instead, if any
    starts_at_x0: ClassVar[tuple[str, ...]] = ()  # fields of records that start where the iterate does
    on_device: ClassVar[bool] = True  # whether its vectors may be on a GPU
    setup_rounds: ClassVar[int] = 0  # rounds before the first step, whose uplink the ledger counts apart too
    Replica: ClassVar[type]
    Server: ClassVar[type] = Nothing
    Worker: ClassVar[type] = Nothing
    Up: ClassVar[type] = Message
    Down: ClassVar[type] = Message

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for a value that the type of its field does not allow."""
        method = type(self)
        for name, check in checks_of(method).items():
            check(method.__name__, name, getattr(self, name))

    def replica(self, x0: Array) -> Any:
        """The state that every rank starts with."""
        return start(self.Replica, x0, (self.iterate, *self.starts_at_x0))

    def server(self, x0: Array) -> Any:
        """The server's private state."""
        return start(self.Server, x0, self.starts_at_x0)

    def worker(self, x0: Array) -> Any:
        """A worker's private state."""
        return start(self.Worker, x0, self.starts_at_x0)

    def senders(self, key: Key) -> Sequence[int]:
        """The workers that take part in the round of ``key``, increasing; every rank names the same."""
        return range(key.n)

    @abstractmethod
    def worker_step(self, w: Any, r: Any, f: Objective, key: Key) -> Any:
        """Worker i's message in the round of ``key``."""

    @abstractmethod
    def server_step(self, s: Any, r: Any, ups: Iterable[tuple[Key, Any]], key: Key) -> Any:
        """The broadcast.  ``ups`` gives (the sender's key, its message) in worker order, once, lazily;
        a message's bytes are valid only until the next one is asked for."""

    @abstractmethod
    def follow(self, r: Any, broadcast: Any, key: Key) -> None:
        """Every rank's update of the replica from the broadcast."""

    def residual(self, w: Any) -> Array | None:
        """What error feedback still owes: the part of the last vector that compression left out."""
        return None

    @abstractmethod
    def paper_bits(self, up: Any, d: int, key: Key) -> int:
        """What the paper charges for the message ``up``, of the worker of ``key``."""

    @abstractmethod
    def paper_bits_down(self, broadcast: Any, d: int, key: Key) -> int:
        """What the paper charges for the ``broadcast`` in the round of ``key``, to one worker."""

    def defaults(self, d: int, n: int) -> dict[str, float]:
        """Parameters that follow from the compressor alone, for fields left at None."""
        return {}

    @abstractmethod
    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        """The parameters of the theorem that the class names, for fields that say "theory"."""

    @property
    def step_name(self) -> str:
        """The paper's name for the step size, which the field has too."""
        return step_size_of(type(self))

    @property
    def step(self) -> Any:
        """The step size, a number or a text such as "theory*8": what tuning scales."""
        return getattr(self, self.step_name)

    def with_step(self, value: float | str) -> Self:
        """The same method with another step size."""
        return replace(self, **{self.step_name: value})

    @property
    def theory_parameters(self) -> tuple[str, ...]:
        """The parameters that may say "theory"."""
        return tuple(name for name, check in checks_of(type(self)).items() if check.theory)

    def resolve(self, constants: Callable[[], Constants], d: int, n: int) -> Self:
        """The same method with every parameter a number; asks for the constants only if it must."""
        checks = checks_of(type(self))
        left_out = [name for name, check in checks.items() if check.default and getattr(self, name) is None]
        defaults = self.defaults(d, n) if left_out else {}
        method = replace(self, **{name: defaults[name] for name in left_out})
        asked = {name: getattr(self, name) for name in self.theory_parameters}
        asked = {name: value for name, value in asked.items() if isinstance(value, str)}
        if not asked:
            return method
        numbers = method.theory(constants(), d, n)
        return replace(method, **{k: theory_factor(k, v) * numbers[k] for k, v in asked.items()})


def start(record: type, x0: Array, starts_at_x0: tuple[str, ...] = ()) -> Any:
    """A ``record`` whose arrays are x0 where ``starts_at_x0`` names them, else zero.

    Fields with a default have that.
    """
    names = [f.name for f in fields(record) if f.default is MISSING]
    return record(**{name: x0.copy() if name in starts_at_x0 else np.zeros_like(x0) for name in names})
