"""EF14: error feedback as first proposed; with a batch, EF14-SGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Absolute, Contractive, Lossless
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, StepSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.estimating import Estimate, EstimatingMethod
from mpicomp.methods.support.feedback import feedback_step
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class EF14(AveragingMethod, EstimatingMethod):
    """Each worker remembers the part that compression dropped, and adds it to its next message::

        worker i   p_i = e_i + γ s_i;   Δ_i = C(p_i);   e_i = p_i - Δ_i
        all        x^{k+1} = x^k - mean Δ_i

    s_i is ∇f_i(x^k), or with ``batch`` its mean over that many samples.  For any C, the virtual iterate
    x^k - mean e_i takes the steps of (stochastic) gradient descent with the gradients at x^k.
    theory, for convex f_i, or any f and one worker: gamma = α/(10 √(L L_max)), with batches
    min{α/(10 √(L (L_max + S))), n/(24 S)}, S = L_ij/b; derived in ``support.feedback``, and not a theorem of
    the papers.  x converges to a neighbourhood of x* unless the ∇f_i(x*) vanish.  Raises ``ConfigError``
    unless C is contractive, for other f, and for batches without L_ij or a bound on their variance.
    """

    C: Contractive | Absolute
    gamma: StepSize = "theory"
    batch: BatchSize = None
    down: Lossless = Lossless()

    paper: ClassVar[str] = "Seide et al. (2014); Stich, Cordonnier, Jaggi (2018); Karimireddy et al. (2019)"

    @dataclass
    class Worker:
        e: Array

    def uplink(self, key: Key) -> Contractive | Absolute:
        return self.C

    def worker_step(self, w: Worker, r: Estimate, f: Objective, key: Key) -> Message:
        w.e += self.gamma * gradient(f, r.x, self.batch, key)  # p_i = e_i + γ s_i
        m = self.C.compress(w.e, key)  # Δ_i = C(p_i)
        self.C.decompress_add(m, w.e, key, -1.0)  # e_i = p_i - Δ_i
        return Message(m)

    def residual(self, w: Worker) -> Array:
        return w.e / self.gamma  # in units of the gradient

    def estimate(self, r: Estimate, broadcast: Message, key: Key) -> None:
        r.g[:] = 0
        self.down.decompress_add(broadcast.m, r.g, key, 1 / self.gamma)  # g^k = mean Δ_i/γ

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        if not isinstance(self.C, Contractive):
            raise ConfigError(f"EF14 has no theory step size for {self.C}; give gamma as a number.")
        return {"gamma": feedback_step(self, c, n, self.batch, self.C.alpha(d, n))}
