"""A rank's collective call packed in one 64-bit number, so that ranks notice when their calls differ.

The ranks exchange these numbers as each call begins.  A number also says whether the rank has met an error or
was asked to stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from mpicomp.base.errors import MpicompError


class Operation(IntEnum):
    """The kind of a collective call; USED compares what a step of an optimiser begins with."""

    BEGIN, CALL, SAVE, LOAD, RESTORE, SETTLE, MODEL, START, TELL, USED, CLOSE, HOLD, DROP, LEAVE = range(14)


_SAID = {
    Operation.BEGIN: "begins another run, Aggregator or Descent",
    Operation.CALL: "calls {}",
    Operation.SAVE: "saves {}",
    Operation.LOAD: "loads {}",
    Operation.RESTORE: "restores {}",
    Operation.SETTLE: "settles the ledger of {}",
    Operation.MODEL: "asks for the model of {}",
    Operation.START: "asks for the start of {}",
    Operation.TELL: "compares parameters for {}",
    Operation.USED: "begins a step of the optimiser with {}",
    Operation.CLOSE: "has ended its work with {}",
    Operation.HOLD: "leaves coordinates out of a step of {}",
    Operation.DROP: "gives up a step of {}",
    Operation.LEAVE: "has come to the end of its program",
}


class Call(NamedTuple):
    """One rank's call, as it tells the other ranks.

    operation    the kind of call
    whose        the run, Aggregator or Descent that is called: its index in ``Transport.names``, below 2²⁴
    failed       this rank has met an error that all ranks shall raise
    interrupted  this rank has been asked to stop
    value        0, or 32 bits that the ranks compare
    """

    operation: Operation
    whose: int = 0
    failed: bool = False
    interrupted: bool = False
    value: int = 0

    @property
    def number(self) -> int:
        """This call as a number of 64 bits."""
        return self.value << 32 | self.whose << 8 | self.operation << 2 | self.failed << 1 | self.interrupted

    @classmethod
    def of(cls, number: int) -> Call:
        """The call with this number."""
        flags = bool(number & 2), bool(number & 1)
        return cls(Operation(number >> 2 & 63), number >> 8 & 0xFFFFFF, *flags, number >> 32)

    def said(self, names: Sequence[str]) -> str:
        """The call in words, such as "saves a run"; ``names`` is ``Transport.names``."""
        return _SAID[self.operation].format(names[self.whose])


def refuse_different(calls: Sequence[Call], names: Sequence[str]) -> None:
    """Raise ``MpicompError`` unless all ranks make the same call; ``calls`` has one call per rank."""
    first = calls[0]
    for rank, other in enumerate(calls):
        if (other.operation, other.whose) != (first.operation, first.whose):
            raise MpicompError(
                f"rank 0 {first.said(names)}, and rank {rank} {other.said(names)}: all ranks have to make "
                "the same calls in the same order."
            )
