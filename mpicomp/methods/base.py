"""What a method is: three records of state and the three halves of a round.

Theory of operation.  A round is one message up and one down::

    up_i  =  worker_step(w_i, r, f_i)      worker i -> server
    down  =  server_step(s, r, ups)        server -> every rank
             follow(r, down)               every rank, the server's included

``Replica`` is what every rank holds, bit for bit: the iterate x, and whatever the averaged messages
let everyone track (DIANA's h, EF21's g).  It changes in ``follow`` alone, from the decoded broadcast,
so ranks cannot drift apart and the server uses the very vector that its workers decoded.  ``Worker``
and ``Server`` are private.  A half changes only its own record, and records hold nothing but arrays
and numbers, so a checkpoint is the saved records.  Methods know no transport and do no I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any, ClassVar, Self

from mpicomp.coding.bits import Bytes
from mpicomp.compressors import Absolute, Contractive, Unbiased
from mpicomp.compressors.base import Array
from mpicomp.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.problems.base import Constants, Objective

# A hyper-parameter as it is given: a number, None (the default), "theory" or "theory*8".  In the method
# that ``resolve`` returns it is a number, and the halves of a round are only ever called on that one.
Step = Any


@dataclass
class Message:
    """The usual record on the wire: one compressed vector."""

    m: Bytes


@dataclass
class Nothing:
    """The state of a half that has none."""


@dataclass(frozen=True)
class Method(ABC):
    """A frozen dataclass of hyper-parameters; nested ``Replica``, ``Server`` and ``Worker`` records.

    ``Up`` and ``Down`` are the records on the wire.
    """

    paper: ClassVar[str]
    steps: ClassVar[tuple[str, ...]] = ("gamma",)  # what may say "theory"; first the step size
    iterate: ClassVar[str] = "x"  # the replica's field that a run reports and measures
    Up: ClassVar[type] = Message
    Down: ClassVar[type] = Message

    @abstractmethod
    def replica(self, x0: Array) -> Any:
        """The state that every rank starts with."""

    def server(self, x0: Array) -> Any:
        """The server's private state."""
        return Nothing()

    def worker(self, x0: Array) -> Any:
        """A worker's private state."""
        return Nothing()

    @abstractmethod
    def worker_step(self, w: Any, r: Any, f: Objective, key: Key) -> Any:
        """Worker i's message in the round of ``key``."""

    @abstractmethod
    def server_step(self, s: Any, r: Any, ups: Iterable[tuple[Key, Any]], key: Key) -> Any:
        """The broadcast.  ``ups`` gives (the sender's key, its message) in worker order, once, lazily;
        a message's bytes are valid only until the next one is asked for."""

    @abstractmethod
    def follow(self, r: Any, down: Any, key: Key) -> None:
        """Every rank's update of the replica from the broadcast."""

    @abstractmethod
    def paper_bits(self, up: Any, d: int, key: Key) -> int:
        """What the paper charges for the message ``up``."""

    def defaults(self, d: int, n: int) -> dict[str, float]:
        """Parameters that follow from the compressor alone, for fields left at None."""
        return {}

    @abstractmethod
    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        """The parameters of the theorem that the class names, for fields that say "theory"."""

    @property
    def step(self) -> Step:
        """The step size, under whatever name the paper has for it: what tuning scales."""
        return getattr(self, self.steps[0])

    def with_step(self, value: Step) -> Self:
        """The same method with another step size."""
        return replace(self, **{self.steps[0]: value})

    def resolve(self, constants: Callable[[], Constants], d: int, n: int) -> Self:
        """The same method with every parameter a number; asks for the constants only if it must."""
        open_fields = [f.name for f in fields(self) if getattr(self, f.name) is None]
        defaults = self.defaults(d, n) if open_fields else {}
        method = replace(self, **{name: defaults[name] for name in open_fields})
        asked = {name: getattr(self, name) for name in self.steps}
        asked = {name: value for name, value in asked.items() if isinstance(value, str)}
        if not asked:
            return method
        numbers = method.theory(constants(), d, n)
        return replace(method, **{k: _factor(k, v) * numbers[k] for k, v in asked.items()})


def check_step(name: str, value: Step) -> None:
    """Raise ``ConfigError`` unless value is a positive number, "theory" or "theory*NUMBER"."""
    if isinstance(value, str):
        _factor(name, value)
    elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
        raise ConfigError(_step_message(name, value))


def _factor(name: str, value: str) -> float:
    head, star, factor = value.partition("*")
    try:
        if head.strip() == "theory" and (not star or 0 < float(factor) < inf):
            return float(factor) if star else 1.0
    except ValueError:
        pass
    raise ConfigError(_step_message(name, value))


def _step_message(name: str, value: object) -> str:
    return f"{name}={value!r}; allowed: a positive number, 'theory', or a multiple such as 'theory*8'."


def require(method: str, name: str, value: object, *kinds: type) -> None:
    """Raise ``ConfigError`` unless ``value`` is of one of the ``kinds`` that the theorem covers."""
    if isinstance(value, kinds):
        return
    wanted = " or ".join(k.__name__.lower() for k in kinds)
    kind = next((k.__name__.lower() for k in (Unbiased, Contractive, Absolute) if isinstance(value, k)), None)
    what = f"{value}, which is {kind}" if kind else repr(value)
    raise ConfigError(f"{method} needs {name} to be {wanted}; it was given {what}. {_remedy(value, kinds)}")


def _remedy(value: object, kinds: tuple[type, ...]) -> str:
    if Unbiased in kinds:
        return "RandK(k=0.01) and Natural() are unbiased; EF21 takes contractive compressors."
    if Contractive in kinds:
        shrunk = f"Shrunk({value}) and " if isinstance(value, Unbiased) else ""
        return f"{shrunk}TopK(k=0.01) would do."
    return f"{kinds[0].__name__}() would do."
