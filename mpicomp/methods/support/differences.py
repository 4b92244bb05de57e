"""DASHA, but for the worker's estimate h_i of its gradient: what DASHA, DASHA-PAGE and DASHA-MVR share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from mpicomp.base.arrays import Array
from mpicomp.compressors import Compressor, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.rates import require_rate
from mpicomp.methods.support.starts import uplink_from
from mpicomp.problems.objective import Objective


class DifferenceMethod(AveragingMethod, EstimatingMethod):
    """Algorithm 1 of DASHA.  h_i^+ estimates ∇f_i(x^{k+1}), as ``local`` computes it::

        worker i   m_i = C_i(h_i^+ - h_i - a (g_i - h_i));   g_i += m_i
        all        g += mean m_i;   x^{k+2} = x^{k+1} - γ g

    A subclass has the fields Q, a and start.
    """

    Q: Unbiased
    a: Any
    start: str

    @dataclass
    class Worker:
        g: Array
        h: Array

    @abstractmethod
    def local(self, w: Any, r: Any, f: Objective, key: Key) -> Array:
        """h_i^+, shape (d,); for round 0 it is h_i^0.  ``w`` and ``r`` stay."""

    def uplink(self, key: Key) -> Compressor:
        return uplink_from(self.start, self.Q, key)

    def worker_step(self, w: Any, r: Any, f: Objective, key: Key) -> Message:
        h = self.local(w, r, f, key)  # h_i^+
        if key.round == 0 and self.start == "zero":
            w.h = h  # as if x^1 = x^0
        C = self.uplink(key)
        m = C.compress(h - w.h - self.a * (w.g - w.h), key)  # m_i
        w.h = h
        C.decompress_add(m, w.g, key)  # g_i += m_i
        return Message(m)

    def estimate(self, r: Any, broadcast: Message, key: Key) -> None:
        self.down.decompress_add(broadcast.m, r.g, key)  # g += mean m_i

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"a": 1 / (2 * self.Q.omega(d, n) + 1)}

    def spread(self, constant: float, d: int, n: int) -> float:
        """``constant`` A (2ω + 1), of the theorems.  Raises ``ConfigError`` unless a = 1/(2ω + 1)."""
        inverse = 2 * self.Q.omega(d, n) + 1
        require_rate(self, "a", 1 / inverse, "1/(2ω + 1)", exact=True)
        return constant * self.Q.ab(d, n)[0] * inverse
