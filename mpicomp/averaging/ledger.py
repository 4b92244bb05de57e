"""The ledger: the bytes of all messages, by direction and worker, as they were handed to the transport.

Bytes are always ``len(message)``, never a formula.  Only the papers' bit counts come from formulas.  A worker
in the server's process is charged like any other, so totals do not depend on how workers are placed on ranks.
The transport itself counts the bytes that crossed between processes (``Transport.sent``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.units import human_bytes


@dataclass(eq=False)
class Ledger:
    """Running totals for n workers.

    ``down`` counts a broadcast once for each worker that gets it, and a message to one worker alone for that
    worker.  ``own`` is the part of ``down`` that went to that worker alone, since this process began: an
    audit and a forecast need it, and a checkpoint does not have it.
    """

    n: int
    up: NDArray[np.int64] = field(init=False)  # bytes from each worker
    down: NDArray[np.int64] = field(init=False)  # bytes to each worker
    paper_bits_up: int = 0  # what the papers would charge: 32 bits a float, indices free
    paper_bits_down: int = 0  # the same count for broadcasts, once for each receiving worker
    set_up_bytes: int = 0  # the part of the uplink bytes sent once, before the first step

    def __post_init__(self) -> None:
        self.up = np.zeros(self.n, dtype=np.int64)
        self.down = np.zeros(self.n, dtype=np.int64)
        self.own = np.zeros(self.n, dtype=np.int64)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return all(np.array_equal(one, another) for one, another in pairs)

    def __str__(self) -> str:
        """The totals of both directions, such as "8 workers: 1.2 MB up, 640 KB down"."""
        workers = "1 worker" if self.n == 1 else f"{self.n} workers"
        return f"{workers}: {human_bytes(self.up_bytes)} up, {human_bytes(self.down_bytes)} down"

    @classmethod
    def sum(cls, ledgers: Sequence[Ledger]) -> Ledger:
        """The sum of the ledgers of n workers each; the ledger itself if there is one."""
        if len(ledgers) == 1:
            return ledgers[0]
        total = cls(ledgers[0].n)
        for one in ledgers:
            total.add_up(one)
            total.down += one.down
            total.own += one.own
            total.paper_bits_down += one.paper_bits_down
        return total

    def add_up(self, share: Ledger) -> None:
        """Add the uplink counts of ``share``, another rank's part of this ledger."""
        self.up += share.up
        self.paper_bits_up += share.paper_bits_up
        self.set_up_bytes += share.set_up_bytes

    @property
    def up_bytes(self) -> int:
        return int(self.up.sum())

    @property
    def down_bytes(self) -> int:
        return int(self.down.sum())
