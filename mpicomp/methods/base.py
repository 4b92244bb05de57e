"""A method: three records of state and the three steps of a round.

Theory of operation.  A round is one message up and one message down::

    up_i       =  worker_step(w_i, r, f_i)      worker i -> server
    step       =  server_step(s, r)             on the server, which takes each up_i
    broadcast  =  step.close()                  server -> every rank
                  replica_step(r, broadcast)    every rank, the server's included

``Replica`` is held by every rank, bit for bit: the iterate x, and every vector that follows from the
averaged messages (DIANA's h, EF21's g).  Only ``replica_step`` changes it, from the decoded broadcast, so the
ranks cannot drift apart, and the server uses the vector that its workers decoded.  ``Worker`` and
``Server`` are private.  A step changes only its own record.  Records hold only arrays and numbers, so a
checkpoint is the saved records.  Methods know no transport and do no I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from inspect import signature
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from mpicomp.base.bits import Bytes
from mpicomp.base.blocks import Blocks
from mpicomp.base.checks import plain_value, theory_factor
from mpicomp.base.docstrings import explain_inherited
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Parts
from mpicomp.base.units import one_line
from mpicomp.compressors.base import Array, Compressor
from mpicomp.compressors.blockwise import Blockwise
from mpicomp.compressors.constants import check_constants
from mpicomp.compressors.lossless import forwards
from mpicomp.keys import Key
from mpicomp.methods.parameters import AUTO_NOISY, Anything, checks_of, is_auto, step_size_of
from mpicomp.problems.base import Constants, Known, Objective


@dataclass
class Message:
    """The record that most methods send: one compressed vector."""

    m: Bytes


@dataclass
class Nothing:
    """The record of a server or worker without state."""


class Accumulator(ABC):
    """The server's step of one round: it takes messages in worker order, then makes the broadcast."""

    @abstractmethod
    def take(self, key: Key, up: Any) -> None:
        """Take the message ``up``, a record ``Up``, of the worker of ``key``.

        Its bytes need be valid only during this call.  Raises ``MessageError`` for a bad message.
        """

    def flush(self) -> None:  # noqa: B027 (by default nothing is held back)
        """Add the messages that were taken but not yet added.  Raises ``MessageError`` if one is bad."""

    @abstractmethod
    def close(self) -> Any:
        """Compute the broadcast, a record ``Down``; this changes the server's record only.

        Raises ``MessageError`` as ``flush``.
        """


@dataclass(frozen=True)
class Method(ABC):
    """A frozen dataclass of hyper-parameters, with nested classes for its records of state and of messages.

    The type of a field gives the values it may have, see ``methods.parameters``; one field is the step size.
    ``Replica``, ``Server`` and ``Worker`` are the records of state, ``Up`` and ``Down`` the messages.  All
    arrays of the state start at 0, except the iterate and the fields in ``starts_at_x0``, which start at x0.

    Parameters that several methods have:

    gamma   the step size γ: a number, "theory", a multiple such as "theory*8", or for some methods "auto"
            or "auto_noisy"
    Q       the workers' compressor
    C       the workers' compressor
    batch   the samples that a worker draws for each gradient, as a count or a fraction; None for all samples
    down    how the broadcast is sent: lossless, or rounded as by lossless(values=f4)
    values  the format of the numbers that are sent
    alpha   the rate α at which the shifts h_i move
    start   the shifts h_i or estimates g_i after the first round: "zero", "gradient", or "compressed", the
            compressed gradient
    sync    how dense rounds are sent, such as by identity(values=f8)
    mu      the constant μ of f's strong convexity
    """

    recalled: ClassVar[str] = ""  # what was written from memory, not checked against the paper
    paper: ClassVar[str]
    inverse_step: ClassVar[bool] = False  # whether the step size is given as its inverse, as 2Direction's L̄
    iterate: ClassVar[str] = "x"  # the replica's field that a run hashes, measures and returns
    model: ClassVar[str | None] = None  # the server's field that a run measures and returns instead
    starts_at_x0: ClassVar[tuple[str, ...]] = ()  # fields of records that start at x0
    on_device: ClassVar[bool] = True  # whether its vectors may be on a GPU
    needs_function: ClassVar[bool] = False  # whether a gradient at one point, of any samples, is not enough
    needs_also: ClassVar[str] = ""  # what workers ask of an f_i besides gradients, in words
    separable: ClassVar[bool] = True  # whether the server treats each coordinate alone, but for compressors
    worker_separable: ClassVar[bool] = True  # whether workers do so too
    may_adapt: ClassVar[bool] = False  # whether the step size "auto" suits it, see ``support.auto_step``
    noisy_estimate: ClassVar[bool] = False  # whether its estimates are noisy without a batch too
    of_ones_own: ClassVar[bool] = False  # whether its class, or a base of it, is not the package's
    setup_rounds: ClassVar[int] = 0  # rounds before the first step; the ledger also counts their uplink apart
    Replica: ClassVar[type]
    Server: ClassVar[type] = Nothing
    Worker: ClassVar[type] = Nothing
    Up: ClassVar[type] = Message
    Down: ClassVar[type] = Message

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        explain_inherited(cls)
        if cls.__module__.partition(".")[0] != "mpicomp":
            cls.of_ones_own = True

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for a value that the type of its field does not allow."""
        method = type(self)
        for name, check in checks_of(method).items():
            if not isinstance(check, Anything):
                object.__setattr__(self, name, plain_value(getattr(self, name)))
            check(method.__name__, name, getattr(self, name))
        if is_auto(self.step):
            self._check_auto()
        for f in fields(self):
            if forwards(C := getattr(self, f.name)) and not (f.name == "down" and self.may_forward):
                raise ConfigError(
                    f"{method.__name__}: {f.name}={C} does not send the mean of the workers' messages, so "
                    "they cannot take its place: leave forward out."
                )

    @property
    def most_liars(self) -> int:
        """The number of workers that may lie where the theorems of the method still hold."""
        return 0

    def _check_auto(self) -> None:
        """Raise ``ConfigError`` unless the step size may be "auto"."""
        name = type(self).__name__
        allowed = "allowed: a positive number, 'theory', or a multiple such as 'theory*8'."
        if not (self.may_adapt and self.steps_plainly):
            raise ConfigError(
                f"{name} takes no {self.step_name}={self.step!r}; {allowed} Methods with the plain step "
                "x - γ g and may_adapt = True take 'auto', EF21 and MARINA among them."
            )

    @property
    def noisy(self) -> bool:
        """Whether its estimates of the gradient are noisy to the step size "auto"."""
        batch = getattr(self, "batch", None)
        return self.noisy_estimate or batch is not None or self.step == AUTO_NOISY

    @property
    def steps_plainly(self) -> bool:
        """Whether every round ends with the step x - γ g."""
        return False

    @property
    def may_forward(self) -> bool:
        """Whether the broadcast is the mean of the messages, so that they may be sent in its place."""
        return False

    def bound(self, parts: Parts) -> Self:
        """This method for an x with these parts: its compressors are bound to them.

        Raises ``ConfigError`` if a compressor's configuration does not fit the parts, or their size d; and if
        the class cannot be made of its fields, as it is here.
        """
        self.check_made_of_fields()
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        bound = {k: C.bound(parts) for k, C in values.items() if isinstance(C, Compressor)}
        for C in bound.values():
            C.nbytes(parts.size)  # refuses a count above d
        return replace(self, **bound)

    def check_made_of_fields(self) -> None:
        """Raise ``ConfigError`` if the class has an ``__init__`` of its own that does not take its fields."""
        names = [f.name for f in fields(self) if f.init]
        try:
            signature(type(self)).bind(**dict.fromkeys(names))
        except TypeError:
            name = type(self).__name__
            raise ConfigError(
                f"{name}.__init__ does not take the fields of {name}, ({', '.join(names)}): a method is a "
                "frozen dataclass. Declare its parameters as fields, and leave __init__ out."
            ) from None

    def in_blocks(self, blocks: Blocks) -> Self:
        """This method with compressors that act on each block of x alone.

        Raises ``ConfigError`` if the method is not separable, or a compressor does not fit its block.
        """
        if not self.separable:
            raise ConfigError(
                f"{type(self).__name__} multiplies whole vectors by matrices on its server, so it cannot be "
                "served in blocks: use server='shared'."
            )
        return self._recoded(lambda C: Blockwise(C, blocks))

    def of_block(self, b: int) -> Self:
        """This method for a server that has only block b of each vector; call it on a method ``in_blocks``.

        Its constants are those of the whole vectors.
        """
        return self._recoded(
            lambda C: C.of_block(b) if isinstance(C, Blockwise) else self._coded(C).of_block(b)
        )

    def _recoded(self, recode: Callable[[Compressor], Compressor]) -> Self:
        """A copy in which each compressor C, in a field or not, is ``recode(C)``."""
        method = copy(self)
        for f in fields(self):
            if isinstance(C := getattr(self, f.name), Compressor):
                object.__setattr__(method, f.name, recode(C))
        object.__setattr__(method, "_coded", cache(recode))
        return method

    def in_these_blocks(self, C: Compressor) -> Any:
        """C for the blocks of this method, or C itself if the method is not ``in_blocks``.

        A method calls this for a compressor that it does not hold in a field.
        """
        return self._coded(C)

    def _coded(self, C: Compressor) -> Any:
        return C

    def replica(self, x0: Array) -> Any:
        """The replica at the start, the same on every rank; ``x0`` has shape (d,)."""
        return start(self.Replica, x0, (self.iterate, *self.starts_at_x0))

    def server(self, x0: Array) -> Any:
        """The server's private state at the start."""
        return start(self.Server, x0, self.starts_at_x0)

    def worker(self, x0: Array) -> Any:
        """A worker's private state at the start."""
        return start(self.Worker, x0, self.starts_at_x0)

    def senders(self, key: Key) -> Sequence[int]:
        """The workers that take part in the round of ``key``, increasing, the same on every rank.

        Draw them from ``key.shared(tag)`` or ``key.of(i).private(tag)``: ranks that differ wait for ever.
        """
        return range(key.n)

    @abstractmethod
    def worker_step(self, w: Any, r: Any, f: Objective, key: Key) -> Any:
        """Compute the message of the worker of ``key``, a record ``Up``; this changes ``w`` only."""

    @abstractmethod
    def server_step(self, s: Any, r: Any, key: Key) -> Accumulator:
        """Begin the server's step; return an ``Accumulator`` that takes the messages and makes the broadcast.

        The step changes ``s`` only.
        """

    def received(self, broadcast: Any, r: Any, key: Key) -> Any:
        """Return the broadcast in the form that ``replica_step`` takes; ``r`` does not change.

        Every rank calls this.  Raises ``MessageError`` if the bytes cannot be a broadcast.
        """
        return broadcast

    @abstractmethod
    def replica_step(self, r: Any, broadcast: Any, key: Key) -> None:
        """Update the replica ``r`` from the broadcast; every rank does the same."""

    def ends_step(self, r: Any, key: Key) -> bool:
        """Whether the round of ``key`` ends a step, so that the next round asks for new gradients.

        ``r`` is the replica after that round.
        """
        return True

    def point(self, r: Any, key: Key) -> Array:
        """The point at which workers ask for a gradient in the round of ``key``, shape (d,)."""
        return getattr(r, self.iterate)

    def residual(self, w: Any) -> Array | None:
        """The part of the worker's last vector that compression dropped, in units of a gradient, shape (d,).

        None if the method does not keep it.  A method with error feedback overrides this.  The total error of
        a run is the sum over rounds of its squared norm, mean over workers.
        """
        return None

    @property
    def keeps_residual(self) -> bool:
        """Whether workers keep the part that compression dropped: only then has a run a total error."""
        return type(self).residual is not Method.residual

    @abstractmethod
    def paper_bits(self, up: Any, d: int, key: Key) -> int:
        """The bits that the paper charges for the message ``up`` of the worker of ``key``."""

    @abstractmethod
    def paper_bits_down(self, broadcast: Any, d: int, key: Key) -> int:
        """The bits that the paper charges for sending ``broadcast`` to one worker in the round of ``key``."""

    def defaults(self, d: int, n: int) -> dict[str, float]:
        """Values, by name, of the fields that are None; computed from the other fields, d and n alone."""
        return {}

    @abstractmethod
    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        """Values, by name, of the fields that may be "theory", by the theorem that the class cites.

        Raises ``ConfigError`` if the theorem does not apply; the message names a remedy.
        """

    @property
    def step_name(self) -> str:
        """The name of the field that is the step size, as the paper has it."""
        return step_size_of(type(self))

    @property
    def step(self) -> Any:
        """The step size that tuning scales: a number, or a text such as "theory*8" or "auto"."""
        return getattr(self, self.step_name)

    def with_step(self, value: float | str) -> Self:
        """This method with the step size ``value``."""
        return replace(self, **{self.step_name: value})

    @property
    def theory_parameters(self) -> tuple[str, ...]:
        """The names of the parameters that may say "theory"."""
        return tuple(name for name, check in checks_of(type(self)).items() if check.theory)

    @property
    def by_theory(self) -> dict[str, str]:
        """The parameters that say "theory" or a multiple of it, and their texts."""
        given = {name: getattr(self, name) for name in self.theory_parameters}
        return {name: text for name, text in given.items() if isinstance(text, str) and not is_auto(text)}

    def resolve(
        self, constants: Callable[[], Constants], d: int, n: int, blocks: Blocks | None = None
    ) -> Self:
        """This method with a number for each "theory", and for each None that stands for a default.

        A step size "auto" stays.

        constants  returns the problem's constants; called only if some field says "theory"
        blocks     if given, the numbers are those of the method ``in_blocks(blocks)``; the method returned is
                   not in blocks

        Raises ``ConfigError`` if a theorem does not apply, if a compressor of one's own states an omega or
        alpha that cannot be one, if L or the theorem's number is beyond double precision, or if
        ``theory`` lacks a field that says "theory".
        """
        left_out = [
            k for k, check in checks_of(type(self)).items() if check.default and getattr(self, k) is None
        ]
        if left_out or self.by_theory:
            for f in fields(self):
                if isinstance(C := getattr(self, f.name), Compressor):
                    check_constants(C, d, n)
        method = self
        if left_out:
            with _in_double_precision(type(self).__name__, " and ".join(left_out)):
                defaults = method._cut(blocks).defaults(d, n)
            method = replace(self, **{name: defaults[name] for name in left_out})
        if method.by_theory:
            method = replace(method, **method._numbers_by_theory(constants(), d, n, blocks))
        return method

    def _cut(self, blocks: Blocks | None) -> Self:
        """This method ``in_blocks``; itself without blocks."""
        return self if blocks is None else self.in_blocks(blocks)

    def _numbers_by_theory(self, c: Constants, d: int, n: int, blocks: Blocks | None) -> dict[str, float]:
        """The numbers, by name, of the fields that say "theory".  Raises ``ConfigError`` as ``resolve``."""
        asked, names = self.by_theory, " and ".join(self.by_theory)
        if c.liars > self.most_liars:
            raise ConfigError(
                f"{type(self).__name__}: theory, of {names}, holds if at most {self.most_liars} "
                f"workers lie, and {c.liars} may. Give numbers, or take ByzVRMARINA with liars={c.liars}."
            )
        if not 1e-150 <= c.L <= 1e150:  # where neither its square nor 1 over it is 0 or infinite
            raise ConfigError(
                f"{type(self).__name__}: theory, of {names}, is for an L from 1e-150 to 1e150, and here "
                f"L={c.L:g}. Give {names} as a number, or scale f."
            )
        known: Any = Known(c, type(self).__name__, names)
        with _in_double_precision(type(self).__name__, names):
            theory = self._cut(blocks).theory(known, d, n)
        if not isinstance(theory, Mapping):
            raise ConfigError(
                f"{type(self).__name__}.theory gives {theory!r:.60}; expected a dict of numbers by name, "
                'such as {"gamma": 1 / c.L}.'
            )
        if lacking := asked.keys() - theory.keys():
            raise ConfigError(
                f"{type(self).__name__}.theory gives no {', '.join(sorted(lacking))}, which says "
                '"theory": give a number, or have theory return it.'
            )
        found = {k: v.item() if isinstance(v, np.generic) else v for k, v in theory.items()}
        return {k: theory_factor(k, v) * found[k] for k, v in asked.items()}


def senders_of(method: Method, key: Key) -> Sequence[int]:
    """``method.senders(key)``.

    Raises ``ConfigError`` if it is a user's and gives something else than workers in increasing order, or
    others when asked again: all ranks ask, and wait for the messages of these workers.
    """
    senders = method.senders(key)
    if not method.of_ones_own:
        return senders
    name = f"{type(method).__name__}.senders"
    if not _are_workers(senders, key.n):
        raise ConfigError(
            f"{name} gives {one_line(senders)}; expected a list of the workers that take part, increasing, "
            f"from 0 to {key.n - 1}, as in [i for i in range(key.n) if ..]."
        )
    if [*method.senders(key)] != [*senders]:
        raise ConfigError(f"{name} gives other workers when asked again: draw them from the key alone.")
    return senders


def _are_workers(senders: Any, n: int) -> bool:
    """Whether ``senders`` is a sequence of different workers' numbers, in increasing order."""
    if not isinstance(senders, Sequence) and np.ndim(senders) != 1:
        return False
    numbers = [-1, *senders, n]
    whole = all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in numbers)
    return whole and all(i < j for i, j in pairwise(numbers))


@contextmanager
def _in_double_precision(method: str, names: str) -> Iterator[None]:
    """Raise ``ConfigError`` where alpha or omega is so extreme that a formula for ``names`` divides by 0."""
    try:
        yield
    except (ZeroDivisionError, OverflowError) as error:
        raise ConfigError(
            f"{method}: {names} by theory is beyond double precision ({error}), as with a compressor that "
            f"sends nearly nothing: give {names} as a number."
        ) from None


def start(record: type, x0: Array, starts_at_x0: tuple[str, ...] = ()) -> Any:
    """Make a ``record``: fields in ``starts_at_x0`` are copies of x0, other fields are 0 with x0's shape.

    A field with a default takes its default.  Raises ``ConfigError`` if ``record`` is no dataclass.
    """
    if not is_dataclass(record):
        raise ConfigError(f"{record.__qualname__} is no dataclass: write @dataclass above it.")
    names = [f.name for f in fields(record) if f.default is MISSING and f.default_factory is MISSING]
    return record(**{name: x0.copy() if name in starts_at_x0 else np.zeros_like(x0) for name in names})
