"""Dore: DIANA's uplink; the downlink is the compressed step, with error feedback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, RateOrDefault, RateOrZero, StepSize
from mpicomp.methods.support import shifts
from mpicomp.methods.support.batch_theory import batch_smoothness
from mpicomp.methods.support.convexity import require_convex
from mpicomp.methods.support.estimating import Estimate, EstimatingMethod
from mpicomp.methods.support.rates import require_rate
from mpicomp.methods.support.shifted import ShiftedMethod
from mpicomp.methods.support.starts import Start
from mpicomp.problems.constants import Constants


@dataclass(frozen=True)
class Dore(ShiftedMethod, EstimatingMethod):
    """Algorithm 1 without a prox::

        worker i   m_i = Q_i(g_i(x^k) - h_i);   h_i += α m_i
        server     g = h + mean m_i;   h += α mean m_i
                   q = -γ g + η e;   e = q - C(q)
        all        x^{k+1} = x^k + β C(q)

    The shifts start at h_i = 0, or as ``start`` says (``support.starts``).  g_i is ∇f_i, or its mean over
    ``batch`` samples; C is ``down``.  h = mean h_i in every round.
    alpha defaults to 1/(1 + ω), beta and eta to 1/(1 + ω'), ω' of C; the paper's experiments have β = η = 1.
    theory, for convex f_i, α ≤ 1/(1 + ω) and η < 2/(1 + ω'):
    gamma = (1 - η(1 + ω')/2) / (β (1 + ω') (1 + 6A) L_max), A of the AB-inequality.  It is not the paper's.
    It follows from DIANA's proof with E‖C(q)‖² ≤ (1 + ω')‖q‖², where E⟨e, x^k - x*⟩ = -β E‖e‖² compensates
    η e in q.  On batches (1 + 6A) L_max is (1 + 6A) L_max + 2 (5A + 1/n) S, S as for DIANA.  Raises
    ``ConfigError`` for a larger η, and for batches that DIANA refuses.

    The error e is the server's.  The total error of a run counts the workers' errors, so it is 0.

    down  the server's compressor
    beta  the weight β of the broadcast in the step
    eta   the weight η of the server's error in its next message
    """

    Q: Unbiased
    down: Unbiased
    gamma: StepSize = "theory"
    alpha: RateOrDefault = None
    beta: RateOrDefault = None
    eta: RateOrZero = None
    batch: BatchSize = None
    start: Start = "zero"

    recalled: ClassVar[str] = "the algorithm"
    paper: ClassVar[str] = "Liu, Li, Tang, Yan, Double residual compression (AISTATS 2020)"

    @dataclass
    class Server:
        h: Array
        e: Array

    def answer(self, s: Server, r: Estimate, m: Array, key: Key) -> Bytes:
        s.e = self.eta * s.e - self.gamma * (s.h + m)  # q = -γ g + η e, g = h + mean m_i
        s.h += self.rate(key) * m  # h += α mean m_i
        q = self.down.compress(s.e, key)  # C(q)
        self.down.decompress_add(q, s.e, key, -1.0)  # e = q - C(q)
        return q

    def estimate(self, r: Estimate, broadcast: Message, key: Key) -> None:
        r.g[:] = 0
        self.down.decompress_add(broadcast.m, r.g, key, -self.beta / self.gamma)  # g^k = -β C(q)/γ

    def defaults(self, d: int, n: int) -> dict[str, float]:
        shrink = 1 / (1 + self.down.omega(d, n))
        return {"alpha": 1 / (1 + self.Q.omega(d, n)), "beta": shrink, "eta": shrink}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_convex(self, c)
        spread, (a, _) = 1 + self.down.omega(d, n), self.Q.ab(d, n)
        if self.eta * spread >= 2:
            raise ConfigError(
                f"eta={self.eta}: Dore has a theory step size for eta < 2/(1 + ω') = {2 / spread:.3g} alone. "
                "Take a smaller eta, or give gamma as a number."
            )
        require_rate(self, "alpha", 1 / (1 + self.Q.omega(d, n)), "1/(1 + ω)")
        K = shifts.convex_constant(c, a, n, batch_smoothness(self, c, self.batch))
        return {"gamma": (1 - self.eta * spread / 2) / (self.beta * spread * K)}
