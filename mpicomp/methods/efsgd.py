"""EF-SGD: error feedback whose memory is not scaled by the step size, above all for hard thresholds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Absolute, Contractive, Lossless
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, Choice, Decay, PartsOfX, StepSize, Switch
from mpicomp.methods.support.batch_theory import batch_smoothness
from mpicomp.methods.support.estimating import Estimate, EstimatingMethod
from mpicomp.methods.support.feedback import feedback_step
from mpicomp.methods.support.memory import AVERAGES, MemoryMethod
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class EFSGD(MemoryMethod, EstimatingMethod):
    """Error feedback whose memory is not scaled by the step size; s_i is the gradient of f_i on a batch::

        worker i   p_i = β e_i + s_i;   Δ_i = C(p_i);   e_i = p_i - Δ_i
        all        x^{k+1} = x^k - γ mean Δ_i

    β is ``decay``, 1 in the paper.  EF14 keeps γ e_i instead.  The two agree for a C that commutes with
    scaling, such as TopK or Sign, and differ for HardThreshold(lam).  Here lam is compared with gradient plus
    memory, so |e_i|_j stays below lam, and a smaller γ does not reduce what is sent.  For any C, the virtual
    iterate x^k - γ mean e_i takes the steps of SGD with the gradients at x^k; with β < 1 it moves by
    -γ mean s_i + γ (1 - β) mean e_i, where e_i is that before the round.

    If β < 1, and s_i is the way x - x_i that worker i has gone in some steps of its own from x, as in
    ``mpicomp.torch.Compressed`` with ``sync_every``, this is SparseLoCo with the outer step γ.  Its paper has
    the mean; its authors' programs have the mean over the senders of each coordinate, and clip the norms.

    theory: for absolute C, gamma = 1/(2 L).  The virtual iterate gives, with full gradients and any
    γ ≤ 1/(2 L), (1/T) Σ |∇f(x^k)|² ≤ 4 (f(x^0) - f*)/(γ T) + 2 γ² L² δ, where |C(x) - x|² ≤ δ; batches of b
    samples whose variance is at most σ² for all x add 2 γ L σ²/(b n).  Convex f_ij of another variance have
    gamma = 1/(2 L + 4 S/n), S = L_ij/b, and (1/T) Σ E[f(x^k) - f*] ≤ |x^0 - x*|²/(γ T) + 2 γ² L δ +
    2 γ σ*²/(b n), σ*² the variance at x*: the second step of the proof in ``support.feedback``, with
    ⟨∇f, x - x*⟩ ≥ f(x) - f* + |∇f|²/(2L).  For contractive C, gamma is that of EF14.  Raises ``ConfigError``
    for other batches, and with β < 1 or another average.

    decay      β, from 0 to 1: the share of its memory that a worker adds to its next message
    average    "mean", over all n workers; or "senders": (Σ_i Δ_i)_j over the number of workers whose message
               has a value at j, a value of 0 too.  C must then choose coordinates, as TopK does
    clip_norm  whether the server first scales Δ_i by min{1, median_l |Δ_l| / |Δ_i|}, each part of x by
               itself, so that no worker outweighs the others; of an even number of norms the median is the
               smaller of the middle two.  It keeps the messages of a round, and decodes each twice.  Where x
               is served in blocks, a part that is cut counts as a part in each block
    """

    C: Contractive | Absolute
    gamma: StepSize = "theory"
    batch: BatchSize = None
    down: Lossless = Lossless()
    decay: Decay = 1.0
    average: Annotated[str, Choice(AVERAGES)] = "mean"
    clip_norm: Switch = False
    parts: PartsOfX = field(default=None, repr=False)  # those of x, for ``clip_norm``; ``bound`` sets it

    paper: ClassVar[str] = (
        "Sahu et al., Rethinking gradient sparsification (NeurIPS 2021); decay: SparseLoCo, arXiv "
        "2508.15706; senders and clipped norms: its authors' programs"
    )
    may_adapt: ClassVar[bool] = True
    noisy_estimate: ClassVar[bool] = True

    @dataclass
    class Worker:
        e: Array

    def worker_step(self, w: Worker, r: Estimate, f: Objective, key: Key) -> Message:
        return self.push(w, gradient(f, r.x, self.batch, key), key)

    def estimate(self, r: Estimate, broadcast: Message, key: Key) -> None:
        r.g[:] = 0
        self.down.decompress_add(broadcast.m, r.g, key)  # g^k, the average of the Δ_i

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        self.require_plain()
        if isinstance(self.C, Contractive):
            return {"gamma": feedback_step(self, c, n, self.batch, self.C.alpha(d, n))}
        return {"gamma": 1 / (2 * c.L + 4 * batch_smoothness(self, c, self.batch) / n)}
