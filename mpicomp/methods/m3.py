"""M3: MARINA-P down, MARINA up, and momentum between them."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.compressors import Identity, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import ProbabilityOrDefault, RateOrDefault, StepSize
from mpicomp.methods.support.coins import CoinUplink, share
from mpicomp.methods.support.own_models import OwnModelMethod
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class M3(CoinUplink, OwnModelMethod):
    """The server has the model x and the estimate g, worker i a model w_i and an average v_i; x, w_i and v_i
    start at x⁰.  The coins c ~ Bern(p), up, and c' ~ Bern(p'), down, are the same on all ranks; c^0 = 1::

        worker i   v_i^k = β w_i^k + (1 - β) v_i^{k-1}
                   sends  ∇f_i(v_i^k) if c = 1, else Q_i(∇f_i(v_i^k) - ∇f_i(v_i^{k-1}))
        server     g^k = the mean of the messages if c = 1, else g^{k-1} + their mean
                   x^{k+1} = x^k - γ g^k
                   if c' = 1 to all:  x^{k+1};  else to worker i alone:  Q'_i(x^{k+1} - x^k)
        worker i   w_i^{k+1} = x^{k+1}, or else w_i^k + Q'_i(x^{k+1} - x^k)

    Q' is ``Q_down``, p' is ``p_down``.  β = 1 without compression up is MARINA-P, without compression down it
    is MARINA.  With a smaller β less of the noise of w_i is in ∇f_i(v_i^k) - ∇f_i(v_i^{k-1}), but v_i lags
    1/β - 1 rounds behind.  p defaults to (mean bytes of Q) / (bytes of ``sync``), p' to that of Q', and beta
    to min{1, ((1-p)/p A (1-p') ω')^{-1/3}}, about n^{-2/3} for 1/n of a vector both ways, where noise and lag
    are in balance.  The run reports x.
    theory, for any smooth f_i: gamma = 1/(L/β + c D + E), D = √((1-p')/p') M of ``MARINAP``, with ω' and θ'.
    With κ = β + p' - βp', c² = β(2-κ)/(κ(2-β)), b² = 2β²(1-p')ω'/(κ(2-β)), A and B of Q,
    S² = (1-p)/p ((A - B) L_+² + B L_±²) of ``MARINA`` and N² = (1-p)/p A L̃², E is S + b N if all f_i are
    quadratic, else min{S + 2c √((1-p')ω'/p') N, (1 + b) N}.
    Then (1/T) Σ E|∇f(x^k)|² ≤ 2 (f(x⁰) - f*)/(γT).

    Proof.  u_i = w_i - x, y = x^{k+1} - x^k.  ‖s‖² is Σ_k E|s^k|² over k < T, with mean L_i²|s_i^k|² in
    place of |s^k|² if there is an s_i for each worker.  R = ‖y‖.

    1. v_i = x + e + e_i, where e⁺ = (1-β)(e - y) and e_i⁺ = β u_i⁺ + (1-β) e_i begin at 0.  So
       ‖e‖ ≤ (1/β - 1) R.  q = x + e is an average of the x so far, so ‖q⁺ - q‖ ≤ R.
    2. m_i = u_i⁺ - (1-p') u_i has mean 0, given the past, and E|m_i|² ≤ (1-p')(p'|u_i|² + ω'|y|²).  By 2. of
       ``MARINAP``, ‖u_i‖² ≤ (1-p')ω'/p' L̃² R², so ‖m_i‖² ≤ (1-p')(2-p') ω' L̃² R².  The m_i of different
       rounds are orthogonal.  u_i, e_i and e_i⁺ - e_i are sums Σ_j h_j m_i^{k-j}, so their ‖.‖² is at most
       ‖m_i‖² Σ h².  This Σ h² is 1/(p'(2-p')) for u_i, c² times that for e_i, and 2β²/(κ(2-β)(2-p')) for
       e_i⁺ - e_i.  So ‖e_i‖ ≤ c √((1-p')ω'/p') L̃ R, and ‖e_i⁺ - e_i‖ ≤ b L̃ R.
    3. ‖mean ∇f_i(v_i) - ∇f(q)‖ ≤ c D R: by 1. of ``MARINAP`` with e_i for u_i, and Σ h² for mean e_i too.
       ‖∇f(q) - ∇f(x)‖ ≤ L ‖e‖.
    4. Let Δ_i = ∇f_i(v_i⁺) - ∇f_i(v_i), G = g - mean ∇f_i(v_i) and V² = A mean|Δ_i|² - B |mean Δ_i|².  Then
       E|G⁺|² ≤ (1-p)(|G|² + V²), so ‖G‖² ≤ (1-p)/p ‖V‖².  V is a seminorm of the Δ_i, at most
       √(A mean|Δ_i|²), and of ∇f_i(q⁺) - ∇f_i(q) at most √((A - B) L_+² + B L_±²) |q⁺ - q|.  The rest of
       Δ_i is at most L_i |e_i⁺ - e_i| for quadratics, else L_i (|e_i⁺| + |e_i|); and Δ_i itself at most
       L_i |v_i⁺ - v_i|.  So ‖G‖ ≤ E R.
    5. So ‖g - ∇f(x)‖ ≤ K R, K = 1/γ - L.  By smoothness f⁺ ≤ f - γ/2 |∇f|² - (1/(2γ) - L/2)|y|² +
       γ/2 |g - ∇f|², and γ K² ≤ K.

    Differences from the paper: the server keeps g, since only means reach it; what goes to all is the step
    from the model last sent to all, so its rounding error shrinks with that step.

    Q       the workers' compressors
    Q_down  the server's compressors
    beta    the weight β of the model in the average v_i
    p       the probability that whole gradients go up
    p_down  the probability that the whole model goes down
    sync    how whole gradients go up, and the whole model down, such as by identity(values=f8)
    """

    Q: Unbiased
    Q_down: Unbiased
    gamma: StepSize = "theory"
    beta: RateOrDefault = None
    p: ProbabilityOrDefault = None
    p_down: ProbabilityOrDefault = None
    sync: Identity = Identity()

    recalled: ClassVar[str] = "the algorithm"
    paper: ClassVar[str] = "Gruntkowska, Tyurin, Richtárik, M3 (arXiv 2402.06412)"
    needs_function: ClassVar[bool] = True  # at points of each worker's own
    starts_at_x0: ClassVar[tuple[str, ...]] = (*OwnModelMethod.starts_at_x0, "v")

    @dataclass
    class Server(OwnModelMethod.Server):
        g: Array

    @dataclass
    class Worker:
        w: Array  # without a model that went to all in the last round
        v: Array
        gradient: Array  # ∇f_i(v_i^{k-1}): one gradient a round

    def worker_step(self, w: Worker, r: OwnModelMethod.Replica, f: Objective, key: Key) -> Message:
        if key.round > 0:
            self.take_whole(w, r, key)
            w.v = self.beta * w.w + (1 - self.beta) * w.v  # v_i^k
        return self.message_of(f.grad(w.v), w, key)

    def direction(self, s: Server, m: Array, key: Key) -> Array:
        s.g = m if self.dense(key) else s.g + m  # g^k
        return s.g

    def own_key(self, key: Key) -> Key:
        return key.named("down")  # Q' and Q may be of one kind

    def defaults(self, d: int, n: int) -> dict[str, float]:
        p = self.p or share(self.Q, self.sync, d, n)
        p_down = self.p_down or share(self.Q_down, self.sync, d, n)
        noise = (1 - p) / p * self.Q.ab(d, n)[0] * (1 - p_down) * self.Q_down.omega(d, n)
        return {"p": p, "p_down": p_down, "beta": 1 / max(1.0, noise) ** (1 / 3)}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        spread, beta = (1 - self.p_down) * self.Q_down.omega(d, n), self.beta
        kappa = 1 - (1 - beta) * (1 - self.p_down)
        apart = sqrt(beta * (2 - kappa) / (kappa * (2 - beta)))  # c
        moves = sqrt(2 * beta**2 * spread / (kappa * (2 - beta)))  # b
        S, N = sqrt(self.spread(c, d, n)), sqrt((1 - self.p) / self.p * self.Q.ab(d, n)[0]) * c.L_tilde
        if c.quadratic:
            E = S + moves * N
        else:
            E = min(S + 2 * apart * sqrt(spread / self.p_down) * N, (1 + moves) * N)
        return {"gamma": 1 / (c.L / beta + apart * self.drift(c, d, n) + E)}
