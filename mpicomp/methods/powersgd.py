"""PowerSGD: gradients of rank r, by one power iteration a step with a warm start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Lossless
from mpicomp.kernels.lowrank import orthonormal
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import (
    BatchSize,
    Momentum,
    PartsOfX,
    PositiveInteger,
    PositiveIntegerOrNone,
    StepSize,
    ValueFormat,
)
from mpicomp.methods.support.factored import FactoredMethod
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class PowerSGD(FactoredMethod):
    """Gradients of rank r, by Algorithms 1 and 2.

    A part of x with two axes or more is a matrix, its first axis by all others, if that saves values:
    r (rows + columns) < size.  Each matrix has a P and a Q of r columns.  A step takes two rounds, in which
    each matrix is treated alike::

        even   worker i   M_i = e_i + s_i;   P_i = M_i Q       (s_i a stochastic gradient at x)
               all        P = the columns of mean P_i, made orthonormal
        odd    worker i   Q_i = M_i' P;   e_i = M_i - P Q_i'
               all        Q = mean Q_i;   g = Δ = P Q';   x = x - γ g
               or         with ``momentum`` λ > 0, m = λ m + Δ;   g = Δ + m

    All other parts, such as biases, are sent whole.  The odd round carries their M_i, after the Q_i, so that
    no rank has to keep a mean from one round to the next.  There Δ = mean M_i, and e_i is what rounding to
    ``values`` leaves, 0 for "f8".  With ``rows``, x is a single matrix of that many rows, of rank r at most.

    λ = 0 stands for no momentum.  Where Δ hardly changes, a step with momentum is γ (1 + 1/(1 - λ)) Δ, so it
    is near 2γ Δ for a small λ.  Without momentum the virtual iterate x - γ mean e_i takes the steps of SGD.
    P is common to all workers, so x is the iterate of one worker with the mean gradient.  (e_i = M_i - P Q'
    would have the same mean, but such an e_i grows for ever where a worker's gradients differ from the mean.)

    Q, the warm start, is made orthonormal before it is used.  This changes P only by rounding, and keeps P_i
    of the size of M_i.  A column of Q that depends linearly on the others, as all do at the start, is drawn
    anew, the same on all ranks.
    theory: none.  One iteration from a warm start has no contraction factor for every M.

    ``bound`` raises ``ConfigError`` if no part is such a matrix.  Without ``rows`` the method has to be bound
    before it is used, else it raises ``ConfigError``.  A run binds it to the parts of its problem.

    Differences from the paper: the server takes the means.

    r         the rank: the columns of P and of Q
    rows      None for the parts of the problem; a count makes x a single matrix of that many rows
    momentum  the momentum λ; 0 for none
    """

    r: PositiveInteger
    rows: PositiveIntegerOrNone = None
    gamma: StepSize = "theory"  # which is refused: there is none
    batch: BatchSize = None
    values: ValueFormat = "f4"
    down: Lossless = Lossless()
    momentum: Momentum = 0.0
    parts: PartsOfX = field(default=None, repr=False)  # those of x, where ``rows`` is None; ``bound`` sets it

    recalled: ClassVar[str] = "the algorithm"
    paper: ClassVar[str] = "Vogels, Karimireddy, Jaggi, PowerSGD (NeurIPS 2019), Algorithms 1 and 2"

    @dataclass
    class Replica:
        x: Array
        g: Array
        P: Array  # of all matrices, one after the other, each row by row; so is Q
        Q: Array
        m: Array  # 0 without momentum

    @dataclass
    class Worker:
        e: Array  # in double precision; M between the two rounds of a step
        halfway: int = 0  # 1 between them

    def rank(self, rows: int, columns: int) -> int:
        return min(self.r, rows, columns)

    def replica(self, x0: Array) -> Replica:
        last = self.layers(x0.size).matrices[-1]
        P, Q = (np.zeros_like(x0, shape=end, dtype=np.float64) for end in (last.P.stop, last.Q.stop))
        return self.Replica(x0.copy(), np.zeros_like(x0), P, Q, np.zeros_like(x0))

    def worker(self, x0: Array) -> Worker:
        return self.Worker(np.zeros_like(x0, dtype=np.float64))

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        layers = self.layers(r.x.size)
        w.halfway = 1 - key.round % 2
        if w.halfway:
            w.e += gradient(f, r.x, self.batch, key)  # M_i = e_i + s_i
            warm = [orthonormal(m.Q_of(r.Q)) for m in layers.matrices]
            start = layers.redrawn(warm, key.shared("powersgd"))
            return Message(self.uplink(key).compress(layers.even(w.e, start), key))  # P_i = M_i Q
        Q, factors = self.uplink(key), layers.odd(w.e, r.P)  # Q_i = M_i' P
        message = Q.compress(factors, key)
        odd = Q.decompress(message, factors.size, key)
        layers.add_difference(w.e, r.P, odd, -1.0)  # e_i = M_i - P Q_i'
        return Message(message)

    def estimate(self, r: Replica, broadcast: Message, key: Key) -> None:
        layers = self.layers(r.x.size)
        mean = self.down.decompress(broadcast.m, self.entries(r.x.size, key), key)
        if key.round % 2 == 0:
            r.P = layers.bases(mean)
        else:
            r.Q = mean[: r.Q.size].copy()
            r.g[:] = 0.0
            layers.add_difference(r.g, r.P, mean)  # g = Δ = P Q'
            if self.momentum:
                r.m *= self.momentum
                r.m += r.g  # m = λ m + Δ
                r.g += r.m  # g = Δ + m

    def residual(self, w: Worker) -> Array | None:
        return None if w.halfway else w.e

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        raise ConfigError("PowerSGD has no theory step size; give gamma as a number.")
