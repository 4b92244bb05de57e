"""Artemis: both directions compressed without bias; each worker takes part with a given probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.compressors import Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, Probability, RateOrZero, StepSize
from mpicomp.methods.support import shifts
from mpicomp.methods.support.batch_theory import batch_smoothness
from mpicomp.methods.support.convexity import require_convex
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.rates import require_rate
from mpicomp.methods.support.shifted import ShiftedMethod
from mpicomp.methods.support.starts import Start, begins
from mpicomp.problems.constants import Constants


@dataclass(frozen=True)
class Artemis(ShiftedMethod, EstimatingMethod):
    """Each worker is in S^k with probability p, independently; absent workers compute and send nothing::

        i in S     m_i = Q_i(g_i(x^k) - h_i);   h_i += α m_i
        server     g = h + (1/(p n)) Σ_S m_i;   h += (α/n) Σ_S m_i;   Ω = C(g - H)
        all        x^{k+1} = x^k - γ (H + Ω);   H += α' Ω

    The shifts start at h_i = g_i(x⁰), which all workers send whole in round 0 as in the authors' code, or as
    ``start`` says (``support.starts``).  h = mean h_i in every round.  g_i is ∇f_i, or its mean over
    ``batch`` samples.  C is ``down`` and α' is ``alpha_down``.
    alpha defaults to 1/(2(1 + ω)).  alpha=0 is the method without memory, the paper's Bi-QSGD; then h_i = 0
    for every start.  alpha_down=0, the default, is the method without the downlink's memory H, as in the
    paper's algorithm; None stands for 1/(2(1 + ω')), ω' of C.
    theory, for convex f_i, α ≤ 1/(1 + ω) and α' ≤ 1/(1 + ω'): gamma = 1/(c (1 + 6B) L_max),
    B = A + (1 - p)(1 + ω)/(p n) with A of the AB-inequality, c = 1 + ω', or 1 + 6ω' with H.  DIANA's proof
    gives it: Ω and the draw of S add to the variance, and ‖H‖² to the Lyapunov function.  The paper's
    constants may be larger.  On batches (1 + 6B) L_max is (1 + 6B) L_max + 2 (5B + 1/n) S, S as for DIANA.
    With α > 0 and full gradients x converges linearly where f is strongly convex, otherwise to a
    neighbourhood of x*.  Raises ``ConfigError`` for batches that DIANA refuses.

    Differences from the paper: of its two ways to treat absent workers this is the second, in which a message
    has the weight 1/(p n) and h stands in for the absent workers.  In the paper a worker that was absent
    catches up with the broadcasts that it missed; here every rank receives every broadcast and is charged for
    it.  The authors' code sends h_i = g_i(x⁰) for p = 1 only.

    down        the server's compressor
    alpha_down  the rate α' at which the downlink's memory H moves; 0 for no memory
    p           the probability with which a worker takes part in a round
    """

    Q: Unbiased
    down: Unbiased
    gamma: StepSize = "theory"
    alpha: RateOrZero = None
    alpha_down: RateOrZero = 0.0
    p: Probability = 1.0
    batch: BatchSize = None
    start: Start = "gradient"

    recalled: ClassVar[str] = "the second of the paper's two ways of partial participation"
    paper: ClassVar[str] = "Philippenko, Dieuleveut, Artemis, arXiv 2006.14591, Algorithm 1"
    may_adapt: ClassVar[bool] = True
    noisy_estimate: ClassVar[bool] = True

    @dataclass
    class Replica:
        x: Array
        g: Array
        H: Array

    @dataclass
    class Server:
        h: Array

    @property
    def _start(self) -> str:
        return "zero" if self.alpha == 0 else self.start

    def senders(self, key: Key) -> Sequence[int]:
        if begins(self._start, key):
            return range(key.n)
        drawn: list[int] = np.flatnonzero(key.shared("artemis/devices").uniform(key.n) < self.p).tolist()
        return drawn

    def answer(self, s: Server, r: Replica, m: Array, key: Key) -> Bytes:
        g = s.h + (m if begins(self._start, key) else m / self.p)  # g = h + (1/(p n)) Σ_S m_i
        s.h += self.rate(key) * m  # h += (α/n) Σ_S m_i
        return self.down.compress_difference(g, r.H, key)  # Ω = C(g - H)

    def estimate(self, r: Replica, broadcast: Message, key: Key) -> None:
        r.g[:] = r.H
        self.down.decompress_add(broadcast.m, r.g, key)  # g^k = H + Ω
        self.down.decompress_add(broadcast.m, r.H, key, self.alpha_down)  # H += α' Ω

    def defaults(self, d: int, n: int) -> dict[str, float]:
        omega, omega_down = self.Q.omega(d, n), self.down.omega(d, n)
        return {"alpha": 1 / (2 * (1 + omega)), "alpha_down": 1 / (2 * (1 + omega_down))}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_convex(self, c)
        require_rate(self, "alpha", 1 / (1 + self.Q.omega(d, n)), "1/(1 + ω)")
        require_rate(self, "alpha_down", 1 / (1 + self.down.omega(d, n)), "1/(1 + ω')")
        a, _ = self.Q.ab(d, n)
        b = a + (1 - self.p) * (1 + self.Q.omega(d, n)) / (self.p * n)
        downlink = 1 + (6 if self.alpha_down else 1) * self.down.omega(d, n)
        K = shifts.convex_constant(c, b, n, batch_smoothness(self, c, self.batch))
        return {"gamma": 1 / (downlink * K)}
