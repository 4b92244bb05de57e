"""Check at the start of each collective call that all ranks make the same one, to prevent deadlocks.

Each transport has a channel of its own.  If two ranks called two transports in different orders, each would
wait for the other on another channel, for ever.  So a call begins with one allgather on a channel that all
transports on the same ranks share.  There the ranks see that their calls differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from threading import Thread, current_thread
from typing import NamedTuple

from mpicomp.base.errors import ConfigError, MpicompError
from mpicomp.transports.calls import Call, Operation, refuse_different


class Features(NamedTuple):
    """What a rank asks of a transport: all ranks ask for it, or none, for they make further calls then.

    Each has the name of its setting, and is true for on_failure="shrink", a number of seconds as
    stall_timeout, and a transport that is given.
    """

    verify_bytes: bool = False
    on_failure: bool = False
    stall_timeout: bool = False
    transport: bool = False


# The value of each setting in messages, if it is not asked for and if it is.
_SAID = (("False", "True"), ("end", "shrink"), ("None", "a number of seconds"), ("None", "a transport"))


def begin(tell_all: Callable[[int], list[int]], names: Sequence[str], asked: Features) -> None:
    """Begin a run or a loop on all ranks; ``asked`` is what this rank asks for.

    Raises ``MpicompError`` on all ranks if a rank makes another call, and ``ConfigError`` on all ranks if a
    rank asks for something else: it names the first difference.
    """
    own = Call(Operation.BEGIN, value=sum(wanted << bit for bit, wanted in enumerate(asked)))
    calls = [Call.of(number) for number in tell_all(own.number)]
    refuse_different(calls, names)
    for rank, call in enumerate(calls):
        for bit, (name, words) in enumerate(zip(Features._fields, _SAID, strict=True)):
            first, other = (words[one.value >> bit & 1] for one in (calls[0], call))
            if first != other:
                raise ConfigError(
                    f"rank {rank} has {name} = {other}, and rank 0 has {first}: all ranks give the same.",
                    unlike=True,
                )


class Meeting(ABC):
    """The channel that all transports on the same ranks share.

    names  the names of the runs, Aggregators and Descents of these ranks; the same list on all ranks
    """

    def __init__(self) -> None:
        self.names = ["a run"]
        self._caller: Thread | None = None  # the thread whose call has not come to its end
        self._broken = False  # whether an exception has ended such a call

    def tell_all(self, number: int) -> list[int]:
        """Allgather one ``number`` per rank, from 0 to 2⁶⁴ - 1, in rank order.

        Raises ``MpicompError`` if an exception ended an earlier call before the other ranks had come, and
        during a call of another thread, whose messages would mix with those of this one.
        """
        if self._broken:
            raise MpicompError(
                "an exception has ended a call on this rank while it waited for the others, which go on with "
                "that call: the ranks cannot work together any more. End the program."
            )
        if (caller := self._caller) is not None:
            raise MpicompError(
                f"the thread {caller.name!r} of this rank is in a call too, and ranks might begin the two in "
                "different orders: make all calls of a program from one thread at a time."
            )
        self._caller = current_thread()
        try:
            told = self._allgather(number)
        except BaseException:
            self._broken = True
            raise
        finally:
            self._caller = None
        return told

    @abstractmethod
    def _allgather(self, number: int) -> list[int]:
        """Allgather one ``number`` per rank; if it raises, ``tell_all`` refuses every later call."""
