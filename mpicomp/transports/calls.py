"""What ranks tell each other as a call begins, in one number: which call it is, and how the rank is."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from mpicomp.base.errors import MpicompError


class Operation(IntEnum):
    """What a rank is about to do together with the others."""

    BEGIN, CALL, SAVE, LOAD, RESTORE, SETTLE, MODEL, START, TELL, CLOSE = range(10)


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
    Operation.CLOSE: "has ended its work with {}",
}


class Call(NamedTuple):
    """A call as its rank tells of it.

    whose        the number of what is called, among all that these ranks have made; less than 2²⁴
    failed       this rank has met an error that all ranks are to raise
    interrupted  this rank has been asked to stop
    value        0, or 32 bits that are to be compared
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
        """The call in words; ``names`` are of all that these ranks have made."""
        return _SAID[self.operation].format(names[self.whose])


def refuse_different(calls: Sequence[Call], names: Sequence[str]) -> None:
    """Raise ``MpicompError`` unless all ranks make the same call; ``calls`` are theirs, in rank order."""
    first = calls[0]
    for rank, other in enumerate(calls):
        if (other.operation, other.whose) != (first.operation, first.whose):
            raise MpicompError(
                f"rank 0 {first.said(names)}, and rank {rank} {other.said(names)}: all ranks have to make "
                "the same calls in the same order."
            )
