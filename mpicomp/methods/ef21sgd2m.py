"""EF21-SGD2M: EF21-SGDM with its momentum applied twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Compressor, Contractive, Lossless
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, Rate, StepSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.batch_theory import require_bounded_variance
from mpicomp.methods.support.estimating import Estimate, EstimatingMethod
from mpicomp.methods.support.starts import EstimateStart, uplink_from
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class EF21SGD2M(AveragingMethod, EstimatingMethod):
    """EF21-SGDM with its momentum applied twice; s_i^k is the gradient of f_i at x^k on a batch::

        worker i   v_i^k = (1 - η) v_i^{k-1} + η s_i^k                       (v_i^0 = u_i^0 = s_i^0)
                   u_i^k = (1 - η) u_i^{k-1} + η v_i^k
                   c_i = C(u_i^k - g_i^{k-1});   g_i^k = g_i^{k-1} + c_i     (g_i^0 = s_i^0)
        all        g^k = g^{k-1} + mean c_i;   x^{k+1} = x^k - γ g^k

    s_i^0 is sent whole; with start="compressed", g_i^0 = C(s_i^0) is sent.  g = mean g_i in every round.  A
    new batch enters u_i with the weight η², so less noise reaches the compressor than in EF21-SGDM.
    With less noise, or for fewer rounds, take a larger eta.  eta = 1 is EF21-SGD.
    theory: gamma = min{α/(60 L̃), η/(16 L)}, where the variance of samples is at most σ² for all x.  Raises
    ``ConfigError`` for other batches.  EF21-SGDM's proof gives every γ ≤ 1/(L (2/η - 1) + Q mean L_i): u lags
    behind v as v does behind ∇f, and moves no more.

    Differences from the paper: as for EF21-SGDM.

    eta  the weight η of the new gradient in the average v_i, and of v_i in u_i
    """

    C: Contractive
    gamma: StepSize = "theory"
    eta: Rate = 0.1
    batch: BatchSize = None
    down: Lossless = Lossless()
    start: EstimateStart = "gradient"

    recalled: ClassVar[str] = "the constants of gamma"
    paper: ClassVar[str] = "Fatkhullin, Tyurin, Richtárik, Momentum provably improves EF (NeurIPS 2023)"
    may_adapt: ClassVar[bool] = True

    @dataclass
    class Worker:
        v: Array
        u: Array
        g: Array

    def uplink(self, key: Key) -> Compressor:
        return uplink_from(self.start, self.C, key)

    def worker_step(self, w: Worker, r: Estimate, f: Objective, key: Key) -> Message:
        s = gradient(f, r.x, self.batch, key)
        if key.round == 0:
            w.v, w.u = s, s.copy()
        else:
            w.v = (1 - self.eta) * w.v + self.eta * s  # v_i^k
            w.u = (1 - self.eta) * w.u + self.eta * w.v  # u_i^k
        C = self.uplink(key)
        c = C.compress_difference(w.u, w.g, key)  # c_i = C(u_i^k - g_i^{k-1})
        C.decompress_add(c, w.g, key)  # g_i^k = g_i^{k-1} + c_i
        return Message(c)

    def residual(self, w: Worker) -> Array:
        return w.u - w.g

    def estimate(self, r: Estimate, broadcast: Message, key: Key) -> None:
        self.down.decompress_add(broadcast.m, r.g, key)  # g^k = g^{k-1} + mean c_i

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_bounded_variance(self, c, self.batch)
        return {"gamma": min(self.C.alpha(d, n) / (60 * c.L_tilde), self.eta / (16 * c.L))}
