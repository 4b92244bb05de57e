"""The step size of error feedback whose memory is added to the next message, with its proof."""

from __future__ import annotations

from math import prod, sqrt

from mpicomp.methods.base import Method
from mpicomp.methods.parameters import BatchSize
from mpicomp.methods.support.batch_theory import batch_smoothness
from mpicomp.methods.support.convexity import require_convex
from mpicomp.problems.constants import Constants


def feedback_step(method: Method, c: Constants, n: int, batch: BatchSize, *alphas: float) -> float:
    """γ = min{α/(10 √(L (L_max + S))), n/(24 S)} for one compressor; S = ``batch_smoothness``.

    alphas  the contraction factor α of the workers' compressor and, if the server compresses with error
            feedback too, its α'; then α α'/40 takes the place of α/10

    Let q = √(1-α) and Q = q/(1-q); for two compressors Q + Q' + 2QQ' takes the place of Q.  For convex f_i,
    with ζ*² = mean |∇f_i(x*)|² and σ*² as in ``batch_smoothness``,

        (1/T) Σ E[f(x^k) - f*] ≤ 2 |x^0 - x*|²/(γT) + 8 L γ² Q² (ζ*² + σ*²/b) + 4 γ σ*²/(b n).

    Proof.  Let x̃ = x - γ e be the virtual iterate, and Z² = mean E |s_i|².

    1. In the norm √(mean E |.|²), the workers' errors grow from E to at most q (E + Z).  So Σ E² ≤ Q² Σ Z².
       The server compresses mean s_i plus the difference of two mean errors of the workers.  So its error has
       Σ E'² ≤ Q'² (1 + 2Q)² Σ Z², and both together have Σ E|e|² ≤ (Q + Q' + 2QQ')² Σ Z².
    2. x̃ takes the steps of SGD.  By 2⟨∇f, e⟩ ≤ |∇f|²/(2L) + 2L |e|², |∇f|² ≤ 2LF and the variance of s,
       E |x̃^+ - x*|² ≤ |x̃ - x*|² - γ (1 - 2γL - 4γS/n) F + 2γ³L |e|² + 2γ²σ*²/(bn),  F = f(x) - f*.
    3. Z² ≤ 4 (L_max + S) F + 2 ζ*² + 2 σ*²/b.  By Q ≤ 2/α, or 8/(αα'), the sum over rounds of 2γ³L |e|² is at
       most γ (8/25) Σ F plus its noise.  With 4γS/n ≤ 1/6, and 2γL ≤ α/5, which is small where Q is near 2/α,
       half of γ Σ F is left.

    Without convexity the gradient of some f_i may be large where that of f is small.  But with one worker, or
    without compression, the step is proved for any f, with L_max = L:
    f(x̃^+) ≤ f(x̃) - γ/2 |∇f(x)|² + (γ/2) γ²L² |e|² + (L/2) γ² |∇f(x)|² + noise, and Lγ + L²γ²Q² ≤ 1/2.
    Raises ``ConfigError`` with several workers and compression unless all f_i are known to be convex.
    """
    alpha, S, L_max = prod(alphas), batch_smoothness(method, c, batch), c.L
    if n > 1 and alpha < 1:
        require_convex(method, c)
        L_max = c.L_max
    gamma = alpha / (10 * 4 ** (len(alphas) - 1) * sqrt(c.L * (L_max + S)))
    return min(gamma, n / (24 * S)) if S else gamma
