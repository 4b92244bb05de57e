"""PowerSGD: gradients of rank r, by one power iteration a step with a warm start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpicomp import kernels
from mpicomp.base.errors import ConfigError
from mpicomp.base.formats import WIDTH
from mpicomp.compressors import Identity, Sparse
from mpicomp.compressors.base import Array
from mpicomp.compressors.rankr import columns_of
from mpicomp.kernels import add_scaled
from mpicomp.kernels.definition.lowrank import orthonormal, outer, times
from mpicomp.keys import Key
from mpicomp.methods.base import Message, Method, Nothing
from mpicomp.methods.parameters import BatchSize, Momentum, PositiveInteger, StepSize, ValueFormat
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class PowerSGD(Method):
    """Algorithms 1 and 2.  Vectors are matrices of ``rows`` rows, stored row after row; P and Q have r
    columns.  A step takes two rounds::

        even   worker i   M_i = e_i + s_i;   P_i = M_i Q       (s_i a stochastic gradient at x)
               all        P = the columns of mean P_i, made orthonormal
        odd    worker i   Q_i = M_i' P;   e_i = M_i - P Q_i'
               all        Q = mean Q_i;   Δ = P Q';   x = x - γ Δ
               or         with ``momentum`` λ > 0, m = λ m + Δ;   x = x - γ (Δ + m)

    λ = 0 stands for no momentum.  Where Δ hardly changes, a step with momentum is γ (1 + 1/(1 - λ)) Δ, so it
    is near 2γ Δ for a small λ.  Without momentum the virtual iterate x - γ mean e_i takes the steps of SGD.
    P is common to all workers, so x is the iterate of one worker with the mean gradient.  (e_i = M_i - P Q'
    would have the same mean, but such an e_i grows for ever where a worker's gradients differ from the mean.)

    Q, the warm start, is made orthonormal before it is used.  This changes P only by rounding, and keeps P_i
    of the size of M_i.  A column of Q that depends linearly on the others, as all do at the start, is drawn
    anew, the same on all ranks.
    theory: none.  One iteration from a warm start has no contraction factor for every M.

    Differences from the paper: the server takes the means; x is one matrix, not one for each layer, and
    every coordinate is compressed.
    """

    r: PositiveInteger
    rows: PositiveInteger
    gamma: StepSize
    batch: BatchSize = None
    values: ValueFormat = "f4"
    down: Sparse = Sparse()
    momentum: Momentum = 0.0

    recalled: ClassVar[str] = "the algorithm"
    paper: ClassVar[str] = "Vogels, Karimireddy, Jaggi, PowerSGD (NeurIPS 2019), Algorithms 1 and 2"

    @dataclass
    class Replica:
        x: Array
        P: Array
        Q: Array
        m: Array  # 0 without momentum

    @dataclass
    class Worker:
        M: Array
        e: Array  # 0 after an even round, as M holds it then

    @property
    def uplink(self) -> Identity:
        """The compressor of P_i and Q_i."""
        return Identity(self.values)

    def replica(self, x0: Array) -> Replica:
        columns = columns_of(x0.size, self.rows)
        r = min(self.r, self.rows, columns)
        P, Q = (np.zeros_like(x0, shape=(side, r), dtype=np.float64) for side in (self.rows, columns))
        return self.Replica(x0.copy(), P, Q, np.zeros_like(x0))

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        if key.round % 2 == 0:
            w.M, w.e = w.e + gradient(f, r.x, self.batch, key), np.zeros_like(w.e)  # M_i = e_i + s_i
            P_i = times(w.M.reshape(self.rows, -1), _start(r.Q, key))  # P_i = M_i Q
            return Message(self.uplink.compress(P_i.ravel(), key))
        m = self.uplink.compress(times(w.M.reshape(self.rows, -1).T, r.P).ravel(), key)  # Q_i = M_i' P
        Q_i = self.uplink.decompress(m, r.Q.size, key).reshape(r.Q.shape)
        w.e = w.M - outer(r.P, Q_i).ravel()  # e_i = M_i - P Q_i'
        return Message(m)

    def server_step(self, s: Nothing, r: Replica, ups: Iterable[tuple[Key, Message]], key: Key) -> Message:
        mean = np.zeros_like((r.Q if key.round % 2 else r.P).ravel())
        for k, up in ups:
            self.uplink.decompress_add(up.m, mean, k, 1 / k.n)
        return Message(self.down.compress(mean, key))

    def follow(self, r: Replica, broadcast: Message, key: Key) -> None:
        if key.round % 2 == 0:
            r.P = orthonormal(self.down.decompress(broadcast.m, r.P.size, key).reshape(r.P.shape))
        else:
            r.Q = self.down.decompress(broadcast.m, r.Q.size, key).reshape(r.Q.shape)
            step = outer(r.P, r.Q).ravel()  # Δ = P Q'
            add_scaled(r.x, step, -self.gamma)  # x = x - γ Δ
            if self.momentum:
                r.m *= self.momentum
                r.m += step  # m = λ m + Δ
                add_scaled(r.x, r.m, -self.gamma)  # x = x - γ (Δ + m)

    def residual(self, w: Worker) -> Array:
        return w.e

    def paper_bits(self, up: Message, d: int, key: Key) -> int:
        return 32 * (len(up.m) // WIDTH[self.values])

    def paper_bits_down(self, broadcast: Message, d: int, key: Key) -> int:
        columns = columns_of(d, self.rows)
        side = columns if key.round % 2 else self.rows  # of Q and of P
        return self.down.paper_bits(broadcast.m, side * min(self.r, self.rows, columns), key)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        raise ConfigError("PowerSGD has no theory step size; give gamma as a number.")


def _start(Q: Array, key: Key) -> Array:
    """Orthonormalise Q; replace linearly dependent columns by random ones, the same on all ranks."""
    Q = orthonormal(Q)
    lost = ~Q.any(axis=0)
    if not lost.any():
        return Q
    return np.where(lost, kernels.to_device(key.shared("powersgd").normals(Q.size).reshape(Q.shape)), Q)
