"""The rounds of MARINA and its kin: a coin says whether whole gradients or changes of gradients are sent."""

from __future__ import annotations

from typing import Any

from mpicomp.base.arrays import Array
from mpicomp.compressors import Compressor, Identity, Lossless, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.estimating import EstimatingMethod, TwoPointEstimate, TwoPoints
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


def share(C: Compressor, whole: Identity, d: int, n: int) -> float:
    """The probability of whole vectors at which these cost, on average, as much as the messages of C."""
    return min(1.0, C.mean_nbytes(d, n) / whole.mean_nbytes(d, n))


class CoinUplink(AveragingMethod):
    """The coin c^k ~ Bern(p) is the same on all ranks, and c^0 = 1::

        worker i   sends a gradient by ``sync`` if c^k = 1, else the change of one by Q

    A subclass has the fields Q, p and sync.
    """

    Q: Unbiased
    p: Any
    sync: Identity

    def dense(self, key: Key) -> bool:
        """Whether c^k = 1 in the round of ``key``."""
        return key.round == 0 or key.shared("marina/coin").coin(self.p)

    def uplink(self, key: Key) -> Unbiased:
        return self.sync if self.dense(key) else self.Q

    def message_of(self, gradient: Array, w: Any, key: Key) -> Message:
        """The message of a worker that keeps its last gradient in ``w``, which ``gradient`` then replaces."""
        before, w.gradient = w.gradient, gradient
        if self.dense(key):
            return Message(self.sync.compress(gradient, key))  # c^k = 1
        return Message(self.Q.compress_difference(gradient, before, key))  # c^k = 0

    def spread(self, c: Constants, d: int, n: int) -> float:
        """(1-p)/p ((A - B) L_+² + B L_±²), with A and B of the AB-inequality: in sums over all rounds, the
        variance of g is at most this times |x^{k+1} - x^k|².
        """
        a, b = self.Q.ab(d, n)
        return (1 - self.p) / self.p * ((a - b) * c.L_plus**2 + b * c.L_pm**2)


class CoinMethod(CoinUplink, EstimatingMethod):
    """With the messages of ``CoinUplink``::

        all        g^{k+1} = the mean of the messages if c^k = 1, else g^k + their mean

    A subclass has the field down, too.
    """

    down: Lossless

    def estimate(self, r: Any, broadcast: Message, key: Key) -> None:
        if self.dense(key):
            r.g[:] = 0  # c^k = 1: what arrives replaces g
        self.down.decompress_add(broadcast.m, r.g, key)  # g^{k+1}


class TwoPointMethod(TwoPointEstimate, CoinMethod):
    """A ``CoinMethod`` whose workers may ask for gradients at x^k and at x^{k-1}, on the same batch J_i::

        worker i   sends ∇f_i(x^{k+1}), or its mean over ``sync_batch`` samples,    if c^k = 1
                   Q_i(1/b' Σ_{j ∈ J_i} (∇f_ij(x^{k+1}) - ∇f_ij(x^k)))              otherwise

    A subclass has the field ``batch`` too, or overrides ``worker_step``.
    """

    batch: BatchSize
    sync_batch: BatchSize = None

    def worker_step(self, w: Any, r: TwoPoints, f: Objective, key: Key) -> Message:
        if self.dense(key):
            return Message(self.sync.compress(gradient(f, r.x, self.sync_batch, key), key))  # c^k = 1
        after, before = (gradient(f, x, self.batch, key) for x in (r.x, r.previous))  # on the same J_i
        return Message(self.Q.compress_difference(after, before, key))  # c^k = 0
