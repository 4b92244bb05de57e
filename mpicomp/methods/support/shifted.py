"""Methods whose workers send the difference of a gradient and a shift, as DIANA's do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpicomp.base.arrays import Array
from mpicomp.compressors import Compressor, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.starts import rate_from, uplink_from
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.objective import Objective


class ShiftedMethod(AveragingMethod):
    """s_i is the gradient of f_i on a batch, at ``point``::

        worker i   m_i = C_i(s_i - h_i);   h_i += α m_i

    Subclasses are dataclasses with the fields Q, alpha, batch and start, or override what uses them.
    """

    Q: Unbiased
    alpha: Any
    batch: BatchSize
    start: str

    @dataclass
    class Worker:
        h: Array

    @property
    def _start(self) -> str:
        """The start of the shifts, one of ``support.starts``."""
        return self.start

    def rate(self, key: Key) -> float:
        """The rate of the shifts in the round of ``key``: α, and 1 where the start is sent."""
        return rate_from(self._start, self.alpha, key)

    def uplink(self, key: Key) -> Compressor:
        return uplink_from(self._start, self.Q, key)

    def worker_step(self, w: Any, r: Any, f: Objective, key: Key) -> Message:
        return self.push(w, gradient(f, self.point(r, key), self.batch, key), key)

    def push(self, w: Any, s: Array, key: Key) -> Message:
        """Send s less the shift ``w.h``, and move the shift."""
        C = self.uplink(key)
        m = C.compress_difference(s, w.h, key)  # m_i = C_i(s_i - h_i)
        C.decompress_add(m, w.h, key, self.rate(key))  # h_i += α m_i
        return Message(m)

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"alpha": 1 / (1 + self.Q.omega(d, n))}
