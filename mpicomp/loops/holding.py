"""The coordinates that the steps of an Aggregator leave out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from zlib import crc32

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.loops.agreement import Agreement, other_rank
from mpicomp.transports.calls import Operation


class Holding:
    """The slices of the open blocks of ``Aggregator.holding``; true if a step leaves out any coordinate."""

    def __init__(self) -> None:
        self._blocks: list[list[slice]] = []

    def __bool__(self) -> bool:
        return any(self._blocks)

    @contextmanager
    def block(self, slices: list[slice]) -> Iterator[None]:
        """In the ``with`` block, leave out ``slices`` too."""
        self._blocks.append(slices)
        try:
            yield
        finally:
            self._blocks.pop()

    def compare(self, agreement: Agreement) -> None:
        """Raise ``ConfigError`` on all ranks unless they leave out the same coordinates; collective."""
        own = sorted((int(s.start), int(s.stop)) for s in self._slices())
        told = agreement.begin(Operation.HOLD, lambda: crc32(repr(own).encode()))
        if (other := other_rank(told)) is not None:
            raise ConfigError(
                f"rank {other} has other slices in holding than rank 0: all ranks give the same."
            )

    def check(self, worker: int, gradient: Array) -> None:
        """Raise ``ConfigError`` if the gradient of this worker is not 0 where it is left out."""
        for where in self._slices():
            if gradient[where].any():
                raise ConfigError(
                    f"worker {worker}: the gradient is not 0 in {where}, which holding leaves out: set it so."
                )

    def refuse(self) -> None:
        """Raise ``ConfigError`` in a block, where the method's state for these coordinates is put aside."""
        if self:
            raise ConfigError(
                "inside agg.holding(..) what the method keeps for coordinates left out is put aside: save or "
                "load a state outside of the block."
            )

    def _slices(self) -> Iterator[slice]:
        return (s for block in self._blocks for s in block)
