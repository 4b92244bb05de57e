"""The step sizes of DIANA on batches, and of DIANA and VR-DIANA for nonconvex f, with their proofs."""

from __future__ import annotations

from math import sqrt

from mpicomp.base.errors import ConfigError
from mpicomp.problems.constants import Constants


def step(c: Constants, a: float, omega: float, alpha: float) -> float:
    """DIANA's step γ = 1/(L + M) for smooth f_i, convex or not, and α < 2/(1 + ω).

    Here M = L_+ √A/(1 - √ρ) and ρ = 1 - 2α + α² (1 + ω).  ``a`` is A of the AB-inequality.  With this step
    E Φ^{k+1} ≤ Φ^k - (γ/2) |∇f(x^k)|² for Φ = f - f* + √A/(2 L_+) D, where D is mean_i |Δ_i|² and
    Δ_i = ∇f_i(x^k) - h_i^k.  So the mean of E |∇f(x^k)|² over T rounds is at most 2 Φ^0/(γ T).

    Proof.  Let V = E |g - ∇f|², which is at most A D, and R = E |x^{k+1} - x^k|² = γ² (|∇f|² + V).

    1. By smoothness and E g = ∇f,  E f(x^{k+1}) ≤ f - γ |∇f|² + (L/2) R.
    2. E |Δ_i - α C_i(Δ_i)|² ≤ ρ |Δ_i|², and the next Δ_i is Δ_i - α C_i(Δ_i) + ∇f_i(x^{k+1}) - ∇f_i(x^k).
       By |u + v|² ≤ |u|²/√ρ + |v|²/(1 - √ρ),  E D^{k+1} ≤ √ρ D + L_+² R/(1 - √ρ).
    3. √A/(2 L_+) times 2., added to 1., puts (L + M)/2 = 1/(2γ) before R, and R/(2γ) is at most
       γ |∇f|²/2 + γ A D/2.  So D gains γ A/2 ≤ A/(2M) = √A/(2 L_+) (1 - √ρ), no more than it lost in 2.

    ρ is least, ω/(1 + ω), for α = 1/(1 + ω); then 1/(1 - √ρ) = 1 + ω + √(ω (1 + ω)).
    Raises ``ConfigError`` for α ≥ 2/(1 + ω): the shifts need not converge then.
    """
    rho = 1 - 2 * alpha + alpha**2 * (1 + omega)
    if rho >= 1:
        raise ConfigError(
            f"alpha={alpha}: DIANA has a theory step size for alpha < 2/(1 + ω) = {2 / (1 + omega):.3g} "
            "alone. Leave alpha out, which is 1/(1 + ω), or give gamma as a number."
        )
    return 1 / (c.L + c.L_plus * sqrt(a) / (1 - sqrt(rho)))


def convex_constant(c: Constants, a: float, n: int, S: float) -> float:
    """K = (1 + 6A) L_max + 2 (5A + 1/n) S.  DIANA's step is γ = 1/K for convex f_ij and α ≤ 1/(1 + ω).

    a  A of the AB-inequality
    S  ``batch_theory.batch_smoothness`` of the batch; 0 for full gradients

    With F = f(x^k) - f*, H = mean |h_i - ∇f_i(x*)|² and N² = 2 (5A + 1/n) σ*²/b, and any γ ≤ 1/K,
    Φ = |x^k - x*|² + 4 (A/α) γ² H has E Φ^{k+1} ≤ max{1 - γμ, 1 - α/2} Φ^k + γ² N².

    Proof.  Let V be mean E |s_i - ∇f_i|², at most 4 S F + 2 σ*²/b by ``batch_theory.batch_smoothness``.

    1. The batches are independent, so E |g|² ≤ |∇f|² + V/n + A mean E |s_i - h_i|², and the last mean is
       mean |∇f_i - h_i|² + V ≤ 4 L_max F + 2H + V.  By |∇f|² ≤ 2 L_max F,
       E |g|² ≤ (2 + 4A) L_max F + 2AH + (A + 1/n) V.
    2. As α (1 + ω) ≤ 1,  E H^{k+1} ≤ H + 2α mean ⟨h_i - ∇f_i(x*), ∇f_i - h_i⟩ + α mean E |s_i - h_i|²
       = (1 - α) H + α mean |∇f_i - ∇f_i(x*)|² + α V ≤ (1 - α) H + α (2 L_max F + V).
    3. By 2., the term 4 (A/α) γ² H of Φ loses 4A γ² H.  Half of it is the rate 1 - α/2; the other half
       cancels what 1. adds.  γ² F has the weight (2 + 12A) L_max + 4 (5A + 1/n) S = 2K, and
       E |x^{k+1} - x*|² ≤ (1 - γμ) |x^k - x*|² - 2γF + γ² E |g|².
    """
    return (1 + 6 * a) * c.L_max + 2 * (5 * a + 1 / n) * S


def sampled_step(c: Constants, a: float, alpha: float, n: int, p: float, variance: float) -> float:
    """γ = min{1/(4L), 1/√(12 A L_+²/α² + 4 T/p), (p²/(16 L T))^{1/3}} with T = (4A + 1/n) S, α ≤ 1/(1 + ω).

    This is VR-DIANA's step for any f_ij.  ``a`` is A of the AB-inequality, and p the probability of a new w.
    S is the ``variance`` L_σ²/b of a batch:  mean_i E |s_i - ∇f_i(x)|² ≤ S W with W = |x^k - w^k|².  With
    this step VR-DIANA has E Φ^{k+1} ≤ Φ^k - (γ/2) |∇f(x^k)|² for Φ = f - f* + c D + e W, c = 2 L γ² A/α and
    e = 2 L γ² T/p.

    Proof.  D, V, R as in ``step``; s_i - h_i takes the place of Δ_i in a message, and ρ ≤ 1 - α.

    1. E f(x^{k+1}) ≤ f - γ |∇f|² + (L/2) R,  and V ≤ A (D + S W) + S W/n.
    2. E |Δ_i - α C_i(s_i - h_i)|² ≤ (1 - α) |Δ_i|² + α E |s_i - ∇f_i|².  By |u + v|² ≤ (1 + α/2) |u|² +
       (1 + 2/α) |v|²,  E D^{k+1} ≤ (1 - α/2) D + (3/2) α S W + (3/α) L_+² R.
    3. w^{k+1} is x^k with probability p, and |x - w - γ∇f|² ≤ (1 + p/2) W + (1 + 2/p) γ² |∇f|².  Hence
       E W^{k+1} ≤ (1 - p/2) W + (2/p) γ² |∇f|² + γ² V.
    4. γ² V has the weight L/2 + 3 c L_+²/α + e ≤ L in Φ, by the second bound on γ.  So D gains at most
       L γ² A = c α/2, and W at most L γ² (A + 1/n) S + (3/2) α S c = e p/2: no more than they lost.
       γ² |∇f|² has the weight L/2 + 3 c L_+²/α + 2 e/p ≤ L + 4 L γ² T/p², at most 1/(4γ) + 1/(4γ) by the
       first and the third bound.
    """
    noise = (4 * a + 1 / n) * variance
    bounds = [1 / (4 * c.L)]
    if a or noise:
        bounds += [1 / sqrt(12 * a * c.L_plus**2 / alpha**2 + 4 * noise / p)]
    if noise:
        bounds += [(p**2 / (16 * c.L * noise)) ** (1 / 3)]
    return min(bounds)
