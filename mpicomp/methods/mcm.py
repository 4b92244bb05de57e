"""MCM: a compressed downlink; the server's own model stays exact."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.compressors import Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, RateOrDefault, StepSize
from mpicomp.methods.support import shifts
from mpicomp.methods.support.batch_theory import batch_smoothness
from mpicomp.methods.support.convexity import require_convex
from mpicomp.methods.support.rates import require_rate
from mpicomp.methods.support.shifted import ShiftedMethod
from mpicomp.methods.support.starts import Start
from mpicomp.problems.constants import Constants


@dataclass(frozen=True)
class MCM(ShiftedMethod):
    """The workers compute gradients at a model w, an unbiased compression of the server's model x::

        worker i   m_i = Q_i(g_i(w^k) - h_i);   h_i += α m_i
        server     g = h + mean m_i;   h += α mean m_i;   x^{k+1} = x^k - γ g;   Ω = C(x^{k+1} - H)
        all        w^{k+1} = H + Ω;   H += α' Ω

    At the start w = H = x⁰.  With start="gradient" h_i = g_i(x⁰), which round 0 sends whole, as in the
    authors' code; ``support.starts`` has the other starts.  h = mean h_i in every round.  g_i is ∇f_i, or the
    mean gradient over ``batch`` samples.  C is ``down``, ω' is its omega, and α' is ``alpha_down``.  alpha
    defaults to 1/(2(1 + ω)), alpha_down to 1/(2(1 + ω')).  The run reports x, the server's model: the theorem
    is about x.
    theory, for convex f_i, α ≤ 1/(1 + ω) and α' ≤ 1/(2(1 + ω')): gamma = 2/(K + √(K² + 40 ω' L K/α'²)),
    K = (1 + 6A) L_max, with A of the AB-inequality.  The proof is that of DIANA's step 1/K, with ‖x - H‖²
    added to the Lyapunov function.  The paper's constants may be larger.  On batches K is
    (1 + 6A) L_max + 2 (5A + 1/n) S, as for DIANA.  Raises ``ConfigError`` for batches that DIANA refuses.

    Differences from the paper: this is the variant whose broadcast is the same for all workers.  Rand-MCM
    compresses x for each worker anew, with a memory H_i each: n messages down, not one.

    down        the server's compressor
    alpha_down  the rate α' at which the downlink's memory H moves
    """

    Q: Unbiased
    down: Unbiased
    gamma: StepSize = "theory"
    alpha: RateOrDefault = None
    alpha_down: RateOrDefault = None
    batch: BatchSize = None
    start: Start = "gradient"

    paper: ClassVar[str] = "Philippenko, Dieuleveut, Preserved central model (NeurIPS 2021), Algorithm 1"
    iterate: ClassVar[str] = "w"
    model: ClassVar[str | None] = "x"
    starts_at_x0: ClassVar[tuple[str, ...]] = ("H", "x")

    @dataclass
    class Replica:
        w: Array
        H: Array

    @dataclass
    class Server:
        x: Array
        h: Array

    def answer(self, s: Server, r: Replica, m: Array, key: Key) -> Bytes:
        s.x -= self.gamma * (s.h + m)  # x^{k+1} = x^k - γ g, g = h + mean m_i
        s.h += self.rate(key) * m  # h += α mean m_i
        return self.down.compress_difference(s.x, r.H, key)  # Ω = C(x^{k+1} - H)

    def replica_step(self, r: Replica, broadcast: Message, key: Key) -> None:
        r.w = r.H.copy()
        self.down.decompress_add(broadcast.m, r.w, key)  # w^{k+1} = H + Ω
        self.down.decompress_add(broadcast.m, r.H, key, self.alpha_down)  # H += α' Ω

    def defaults(self, d: int, n: int) -> dict[str, float]:
        omega, omega_down = self.Q.omega(d, n), self.down.omega(d, n)
        return {"alpha": 1 / (2 * (1 + omega)), "alpha_down": 1 / (2 * (1 + omega_down))}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_convex(self, c)
        omega, (a, _) = self.down.omega(d, n), self.Q.ab(d, n)
        require_rate(self, "alpha", 1 / (1 + self.Q.omega(d, n)), "1/(1 + ω)")
        require_rate(self, "alpha_down", 1 / (2 * (1 + omega)), "1/(2(1 + ω'))")
        K = shifts.convex_constant(c, a, n, batch_smoothness(self, c, self.batch))
        return {"gamma": 2 / (K + sqrt(K**2 + 40 * omega * c.L * K / self.alpha_down**2))}
