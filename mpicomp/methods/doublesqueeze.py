"""DoubleSqueeze: error feedback on the workers and on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Absolute, Compressor, Contractive
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, StepSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.feedback import feedback_step
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class DoubleSqueeze(AveragingMethod, EstimatingMethod):
    """Workers and server each add what they dropped to their next message::

        worker i   v_i = g_i(x^k) + δ_i;        δ_i = v_i - C(v_i)
        server     v = mean C(v_i) + δ;         δ = v - C'(v)
        all        x^{k+1} = x^k - γ C'(v)

    g_i is ∇f_i, or its mean over ``batch`` samples; C' is ``down``.  For any C, the virtual iterate
    x^k - γ (mean δ_i + δ) takes the steps of (stochastic) gradient descent with the gradients at x^k.
    theory, for convex f_i, or any f and one worker: gamma = α α'/(40 √(L L_max)), α' of C', with batches
    min{α α'/(40 √(L (L_max + S))), n/(24 S)}, S = L_ij/b; derived in ``support.feedback``, and not the
    paper's.  Raises ``ConfigError`` as EF14 does, and unless C and C' are contractive.

    The total error of a run counts the workers' δ_i, not the server's δ.

    down  the server's compressor
    """

    C: Contractive | Absolute
    down: Contractive | Absolute
    gamma: StepSize = "theory"
    batch: BatchSize = None

    recalled: ClassVar[str] = "the algorithm"
    paper: ClassVar[str] = "Tang, Yu, Lian, Zhang, Liu, DoubleSqueeze (ICML 2019)"

    @dataclass
    class Replica:
        x: Array
        g: Array

    @dataclass
    class Server:
        e: Array  # δ

    @dataclass
    class Worker:
        e: Array  # δ_i

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        w.e += gradient(f, r.x, self.batch, key)  # v_i = g_i(x^k) + δ_i
        m = self.C.compress(w.e, key)  # C(v_i)
        self.C.decompress_add(m, w.e, key, -1.0)  # δ_i = v_i - C(v_i)
        return Message(m)

    def uplink(self, key: Key) -> Compressor:
        return self.C

    def residual(self, w: Worker) -> Array:
        return w.e

    def answer(self, s: Server, r: Replica, m: Array, key: Key) -> Bytes:
        s.e += m  # v = mean C(v_i) + δ
        answer = self.down.compress(s.e, key)  # C'(v)
        self.down.decompress_add(answer, s.e, key, -1.0)  # δ = v - C'(v)
        return answer

    def estimate(self, r: Replica, broadcast: Message, key: Key) -> None:
        r.g[:] = 0
        self.down.decompress_add(broadcast.m, r.g, key)  # g^k = C'(v)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        alphas = []
        for C in (self.C, self.down):
            if not isinstance(C, Contractive):
                raise ConfigError(f"DoubleSqueeze has no theory step size for {C}; give gamma as a number.")
            alphas.append(C.alpha(d, n))
        return {"gamma": feedback_step(self, c, n, self.batch, *alphas)}
