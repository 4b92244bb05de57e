"""EF-SGD: error feedback in units of the gradient, for a hard threshold above all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.compressors import Absolute, Contractive, Sparse
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, StepSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class EFSGD(AveragingMethod):
    """What compression drops is remembered, unscaled by the step; s_i is the gradient of f_i on a batch::

        worker i   p_i = e_i + s_i;   Δ_i = C(p_i);   e_i = p_i - Δ_i
        all        x^{k+1} = x^k - γ mean Δ_i

    EF14 keeps γ e_i instead.  That is the same for a C that commutes with scaling, TopK or Sign say.  A hard
    threshold does not: here lam acts on gradient and memory as they are, so no |e_i|_j ever reaches it, and
    a smaller γ sends no less.  The virtual iterate x^k - γ mean e_i is SGD's on the sent history, for any C.
    theory: for absolute C, gamma = 1/(2 L).  From the virtual iterate, with full gradients: for any
    γ ≤ 1/(2 L), (1/T) Σ |∇f(x^k)|² ≤ 4 (f(x^0) - f*)/(γ T) + 2 γ² L² δ, where |C(x) - x|² ≤ δ; a mean of
    batches adds 2 γ L σ²/n.  For contractive C, α/(10 L), a safe default of the form α/(c L).
    """

    C: Contractive | Absolute
    gamma: StepSize = "theory"
    batch: BatchSize = None
    down: Sparse = Sparse()

    paper: ClassVar[str] = "Sahu et al., Rethinking gradient sparsification (NeurIPS 2021)"

    @dataclass
    class Replica:
        x: Array

    @dataclass
    class Worker:
        e: Array

    def uplink(self, key: Key) -> Contractive | Absolute:
        return self.C

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        w.e += gradient(f, r.x, self.batch, key)  # p_i
        m = self.C.compress(w.e, key)
        self.C.decompress_add(m, w.e, key, -1.0)  # e_i = p_i - Δ_i
        return Message(m)

    def residual(self, w: Worker) -> Array:
        return w.e

    def follow(self, r: Replica, broadcast: Message, key: Key) -> None:
        self.down.decompress_add(broadcast.m, r.x, key, -self.gamma)  # x^{k+1} = x^k - γ mean Δ_i

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        if isinstance(self.C, Contractive):
            return {"gamma": self.C.alpha(d, n) / (10 * c.L)}
        return {"gamma": 1 / (2 * c.L)}
