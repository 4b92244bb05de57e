"""Methods without compression: gradients are sent whole, in one number format."""

from __future__ import annotations

from typing import Any

from mpicomp.compressors import Compressor, Identity
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.problems.objective import Objective


class DenseMethod(AveragingMethod):
    """Each worker sends ∇f_i(``point``), and the server the mean, both dense.

    Subclasses are dataclasses with a field ``values``, the format of the numbers in both directions.
    """

    values: str

    def uplink(self, key: Key) -> Compressor:
        return self.in_these_blocks(Identity(self.values))

    @property
    def down(self) -> Compressor:  # type: ignore[override]
        return self.in_these_blocks(Identity(self.values))

    def worker_step(self, w: Any, r: Any, f: Objective, key: Key) -> Message:
        return Message(self.uplink(key).compress(f.grad(self.point(r, key)), key))
