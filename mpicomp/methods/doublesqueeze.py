"""DoubleSqueeze: error feedback on the workers and on the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Absolute, Contractive
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, Choice, Decay, PartsOfX, StepSize, Switch
from mpicomp.methods.support.estimating import Estimate, EstimatingMethod
from mpicomp.methods.support.feedback import feedback_step
from mpicomp.methods.support.memory import AVERAGES, MemoryMethod
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class DoubleSqueeze(MemoryMethod, EstimatingMethod):
    """Workers and server each add the part that their compressor dropped to their next message::

        worker i   v_i = g_i(x^k) + β δ_i;      δ_i = v_i - C(v_i)
        server     v = mean C(v_i) + δ;         δ = v - C'(v)
        all        x^{k+1} = x^k - γ C'(v)

    g_i is ∇f_i, or its mean over ``batch`` samples; C' is ``down``; β is ``decay``, 1 in the paper.  For any
    C, the virtual iterate x^k - γ (mean δ_i + δ) takes the steps of (stochastic) gradient descent with the
    gradients at x^k; with β < 1 it moves by -γ mean g_i + γ (1 - β) mean δ_i, where δ_i is that before the
    round.
    theory, for convex f_i, or any f and one worker: gamma = α α'/(40 √(L L_max)), α' of C', with batches
    min{α α'/(40 √(L (L_max + S))), n/(24 S)}, S = L_ij/b; derived in ``support.feedback``, and not the
    paper's.  "theory" raises ``ConfigError`` for the batches that EF14 refuses, for a C or C' that is not
    contractive, for β < 1, and for an average other than "mean".

    The ``error`` in a run's rows counts the workers' δ_i, not the server's δ.

    down       the server's compressor
    decay      β, from 0 to 1: the share of its memory δ_i that a worker adds to its next message.  The
               server's memory δ does not decay: what a broadcast drops is sent later
    average    "mean", of the C(v_i) of all workers; or "senders", of those that sent the coordinate
    clip_norm  whether the server clips each |C(v_i)| at the median of these norms, in each part of x
    """

    C: Contractive | Absolute
    down: Contractive | Absolute
    gamma: StepSize = "theory"
    batch: BatchSize = None
    decay: Decay = 1.0
    average: Annotated[str, Choice(AVERAGES)] = "mean"
    clip_norm: Switch = False
    parts: PartsOfX = field(default=None, repr=False)  # those of x, for ``clip_norm``; ``bound`` sets it

    recalled: ClassVar[str] = "the algorithm"
    paper: ClassVar[str] = "Tang, Yu, Lian, Zhang, Liu, DoubleSqueeze (ICML 2019)"
    may_adapt: ClassVar[bool] = True
    noisy_estimate: ClassVar[bool] = True

    @dataclass
    class Server:
        e: Array  # δ

    @dataclass
    class Worker:
        e: Array  # δ_i

    def worker_step(self, w: Worker, r: Estimate, f: Objective, key: Key) -> Message:
        return self.push(w, gradient(f, r.x, self.batch, key), key)  # C(v_i), v_i = g_i(x^k) + β δ_i

    def answer(self, s: Server, r: Estimate, m: Array, key: Key) -> Bytes:
        s.e += m  # v = mean C(v_i) + δ
        answer = self.down.compress(s.e, key)  # C'(v)
        self.down.decompress_add(answer, s.e, key, -1.0)  # δ = v - C'(v)
        return answer

    def estimate(self, r: Estimate, broadcast: Message, key: Key) -> None:
        r.g[:] = 0
        self.down.decompress_add(broadcast.m, r.g, key)  # g^k = C'(v)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        self.require_plain()
        alphas = []
        for C in (self.C, self.down):
            if not isinstance(C, Contractive):
                raise ConfigError(f"DoubleSqueeze has no theory step size for {C}; give gamma as a number.")
            alphas.append(C.alpha(d, n))
        return {"gamma": feedback_step(self, c, n, self.batch, *alphas)}
