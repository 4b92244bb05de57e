"""Methods whose workers have models of their own, which follow the server's by compressed steps of it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MessageError
from mpicomp.compressors import Identity, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.scattering import ScatteringMethod
from mpicomp.problems.constants import Constants


class OwnModelMethod(AveragingMethod, ScatteringMethod):
    """The way down of MARINA-P.  The server has the model x, and worker i a model w_i, at the start both x⁰::

        server     x^{k+1} = x^k - γ g^k
                   with probability p, the coin the same on all ranks, to all:  x^{k+1}
                   else to worker i alone:  Q_i(x^{k+1} - x^k)
        worker i   w_i^{k+1} = x^{k+1}, or else w_i^k + Q_i(x^{k+1} - x^k)

    Q_i is ``Q_down`` and p is ``p_down``, fields or properties of a subclass, and ``sync`` is a field.  The
    subclass's records derive from those here, and its ``Worker`` has the field w.
    """

    Q_down: Unbiased
    p_down: Any
    sync: Identity

    iterate: ClassVar[str] = "z"
    model: ClassVar[str | None] = "x"
    starts_at_x0: ClassVar[tuple[str, ...]] = ("x", "before", "w")

    @dataclass
    class Replica:
        z: Array  # the last model that went to all

    @dataclass
    class Server:
        x: Array
        before: Array  # x^k, once x is x^{k+1}

    @property
    def down(self) -> Identity:  # type: ignore[override]
        return self.sync

    @abstractmethod
    def direction(self, s: Any, m: Array, key: Key) -> Array:
        """g^k, shape (d,), from ``m``, the mean of the workers' messages; this changes ``s`` alone."""

    def take_whole(self, w: Any, r: Any, key: Key) -> None:
        """Take into ``w`` the model that went to all workers in the last round, if one did."""
        if key.round > 0 and self._whole(key.before()):
            w.w = r.z.copy()  # w_i^k = x^k

    def answer(self, s: Any, r: Any, m: Array, key: Key) -> Bytes:
        s.before, s.x = s.x, s.x - self.step * self.direction(s, m, key)  # x^{k+1} = x^k - γ g^k
        if self._whole(key):
            return self.sync.compress(s.x - r.z, key)
        return np.zeros_like(m, shape=0, dtype=np.uint8)

    def replica_step(self, r: Any, broadcast: Message, key: Key) -> None:
        if self._whole(key):
            self.sync.decompress_add(broadcast.m, r.z, key)
        elif len(broadcast.m):
            raise MessageError(
                f"{type(self).__name__}: {len(broadcast.m)} bytes for all where each worker has its own."
            )

    def scatters(self, key: Key) -> bool:
        return not self._whole(key)

    def own_key(self, key: Key) -> Key:
        """The key of the message to the worker of ``key`` alone; its draws are not those of a message up."""
        return key

    def own_message(self, s: Any, r: Any, key: Key) -> Message:
        return Message(self.Q_down.compress_difference(s.x, s.before, self.own_key(key)))

    def receive(self, w: Any, own: Message, key: Key) -> None:
        self.Q_down.decompress_add(own.m, w.w, self.own_key(key))  # w_i^{k+1} = w_i^k + Q_i(x^{k+1} - x^k)

    def _whole(self, key: Key) -> bool:
        return key.shared("marinap/coin").coin(self.p_down)

    def paper_bits_down(self, broadcast: Message, d: int, key: Key) -> int:
        return self.sync.paper_bits(broadcast.m, d, key) if self._whole(key) else 0

    def paper_bits_own(self, own: Message, d: int, key: Key) -> int:
        return self.Q_down.paper_bits(own.m, d, self.own_key(key))

    def drift(self, c: Constants, d: int, n: int) -> float:
        """√((1-p)/p) M, where M = L̃ √ω, and for quadratics min{L̃ √ω, L_± √ω + L √θ}, θ = A - B.

        In sums of squares over all rounds, |mean ∇f_i(w_i^k) - ∇f(x^k)| is at most this times
        |x^{k+1} - x^k|: the proof is in the docstring of ``MARINAP``.
        """
        omega, (a, b) = self.Q_down.omega(d, n), self.Q_down.ab(d, n)
        M = c.L_tilde * sqrt(omega)
        if c.quadratic:
            M = min(M, c.L_pm * sqrt(omega) + c.L * sqrt(a - b))
        return sqrt((1 - self.p_down) / self.p_down) * M
