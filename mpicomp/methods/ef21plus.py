"""EF21+: each worker takes the better of EF21's estimate and a fresh one."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.compressors import Compressor, Contractive, Lossless
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import StepSize
from mpicomp.methods.support.averaging import Each
from mpicomp.methods.support.estimating import Estimate, EstimatingMethod
from mpicomp.methods.support.starts import EstimateStart, uplink_from
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class EF21Plus(EstimatingMethod):
    """Algorithm 3::

        worker i   c_i = C(∇f_i(x^k) - g_i^{k-1}),   b_i = C(∇f_i(x^k))
                   g_i^k = g_i^{k-1} + c_i  or  b_i,  whichever is nearer to ∇f_i(x^k); the former if equal
        all        g^k = mean g_i^k;   x^{k+1} = x^k - γ g^k

    At the start g_i^0 = C(∇f_i(x^0)), the better of two draws where C is random; with start="gradient"
    g_i^0 = ∇f_i(x^0), sent whole.
    theory: that of EF21, as g_i is never farther from the gradient than EF21's step from the same g_i^{k-1};
    gamma = 1/(L + mean L_i √(1-α)/(1 - √(1-α))), with EF21's bound.

    The wire.  To replace g_i^{k-1} by b_i, the server has to know g_i^{k-1}.  In the paper the server keeps
    all g_i, n d numbers, and one bit of the message tells c_i from b_i.  Here the server keeps no g_i.  A
    worker that takes b_i also sends ``old`` = g_i^{k-1}, lossless, and the server subtracts it.  Otherwise
    ``old`` is empty and takes one byte.  A message with ``old`` costs up to d coordinates more, but few if
    g_i^{k-1} was a b_i itself.  ``paper_bits`` charges the paper's bit in place of ``old``.

    Differences from the paper: the wire; the mean increment is broadcast and every rank takes the step.
    """

    C: Contractive
    gamma: StepSize = "theory"
    down: Lossless = Lossless()
    start: EstimateStart = "compressed"

    worker_separable: ClassVar[bool] = False
    paper: ClassVar[str] = "Richtárik, Sokolov, Fatkhullin, EF21 (NeurIPS 2021), Algorithm 3"
    may_adapt: ClassVar[bool] = True

    @dataclass
    class Worker:
        g: Array
        e: Array  # ∇f_i(x^k) - g_i^k

    @dataclass
    class Up:
        old: Bytes  # g_i^{k-1} where m is b_i; empty where m is c_i
        m: Bytes

    @property
    def _lossless(self) -> Compressor:
        return self.in_these_blocks(Lossless())

    def _uplink(self, key: Key) -> Compressor:
        return uplink_from(self.start, self.C, key)

    def worker_step(self, w: Worker, r: Estimate, f: Objective, key: Key) -> Up:
        C, fresh = self._uplink(key), key.named("fresh")
        b_error = f.grad(r.x)
        c_error = b_error - w.g
        b, c = C.compress(b_error, fresh), C.compress(c_error, key)  # b_i, c_i
        C.decompress_add(b, b_error, fresh, -1.0)  # ∇f_i(x^k) - b_i
        C.decompress_add(c, c_error, key, -1.0)  # ∇f_i(x^k) - g_i^{k-1} - c_i
        if np.sum(c_error * c_error) <= np.sum(b_error * b_error):  # the former if equal
            w.e = c_error
            C.decompress_add(c, w.g, key)  # g_i^k = g_i^{k-1} + c_i
            return self.Up(np.empty(0, np.uint8), c)
        w.e, old = b_error, self._lossless.compress(w.g, key)
        w.g = np.zeros_like(w.g)
        C.decompress_add(b, w.g, fresh)  # g_i^k = b_i
        return self.Up(old, b)

    def server_step(self, s: object, r: Estimate, key: Key) -> Each:
        C, mean = self._uplink(key), np.zeros_like(r.x)  # mean of g_i^k - g_i^{k-1}

        def add(k: Key, up: EF21Plus.Up) -> None:
            if len(up.old):
                self._lossless.decompress_add(up.old, mean, k, -1 / k.n)
                k = k.named("fresh")
            C.decompress_add(up.m, mean, k, 1 / k.n)

        return Each(add, lambda: Message(self.down.compress(mean, key)))

    def residual(self, w: Worker) -> Array:
        return w.e

    def estimate(self, r: Estimate, broadcast: Message, key: Key) -> None:
        self.down.decompress_add(broadcast.m, r.g, key)  # g^k = g^{k-1} + the mean increment

    def paper_bits(self, up: Up, d: int, key: Key) -> int:
        return self._uplink(key).paper_bits(up.m, d, key.named("fresh") if len(up.old) else key) + 1

    def paper_bits_down(self, broadcast: Message, d: int, key: Key) -> int:
        return self.down.paper_bits(broadcast.m, d, key)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        root = sqrt(1 - self.C.alpha(d, n))
        return {"gamma": 1 / (c.L + c.L_mean * root / (1 - root))}
