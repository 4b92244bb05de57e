"""EF21-Muon: steps of a given length along EF21's estimate, compressed in both directions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.blocks import Blocks
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Contractive
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, PartsOfX, PositiveIntegerOrNone, StepSize
from mpicomp.methods.support.estimating import Estimate, TwoPoints
from mpicomp.methods.support.lmo_method import (
    Gap,
    GradientAverage,
    LMOMethod,
    Norm,
    Polar,
    RateOrDecreasing,
    lag,
)
from mpicomp.methods.support.starts import EstimateStart
from mpicomp.problems.constants import Constants


@dataclass(frozen=True)
class EF21Muon(LMOMethod):
    """EF21LMO with a compressed downlink.  The server steps its own model z along D(h), and sends C'(q)::

        worker i   v_i^k = (1 - η) v_i^{k-1} + η s_i^k                       (v_i^0 = s_i^0)
                   c_i = C(v_i^k - h_i^{k-1});   h_i^k = h_i^{k-1} + c_i     (h_i^0 = s_i^0)
        server     h^k = h^{k-1} + mean c_i;   q = e + D(h^k);   g^k = C'(q);   e = q - g^k
        all        x^{k+1} = x^k - γ g^k

    s_i^k is the gradient of f_i at x^k on a batch; D, its norms, ``start`` and ``momentum`` are those of
    ``EF21LMO``, which says too where v_i and s_i are others than these.
    C' is ``down``.  z = x - γ e is in no record.  It takes the steps z^+ = z - γ D(h), and g is (x - z^+)/γ
    compressed: the downlink of EF21-P, and error feedback on the server.  If C' is lossless, e = 0, and the
    iterates are those of EF21LMO.  The run reports x, where the workers are.  An ``Aggregator``'s caller
    takes the step x - γ g by SGD without momentum.

    Any γ > 0 is allowed.  eta="decreasing" is that of EF21LMO, g^k = C'(e + (2/(k+2))^q D(h^k)), q = 3/4
    for momentum="heavy-ball".
    theory: the γ that minimises the bound below for T = ``rounds`` and F = ``gap``,
    γ = √(F/(T ρ² (L (1/2 + Q') + 2 (1 + 2Q') M))).  It is refused where that of EF21LMO is.

    With ‖.‖_*, ρ, M, Q and N as for EF21LMO, Q' = √(1-α')/(1 - √(1-α')), α' of C', from start="gradient",

        (1/T) Σ E‖∇f(x^k)‖_* ≤ F/(γT) + γ ρ² (L (1/2 + Q') + 2 (1 + 2Q') M) + 2ρN,

    and start="compressed" adds 2ρ Q mean|s_i^0|/T.  At z^k in place of x^k, 1/2 + 2Q' takes the place of
    1/2 + Q'.

    Proof.  The steps of z have |z^+ - z| ≤ ρ γ.

    1. E|e^+| ≤ √(1-α') (E|e| + |D(h)|), and e begins at 0, so E|z - x| = γ E|e| ≤ Q' ρ γ in all rounds.
    2. x^+ - x = (z^+ - z) - (z^+ - x^+) + (z - x), so E|x^+ - x| ≤ (1 + 2Q') ρ γ.
    3. 2 and 3 of EF21LMO's proof speak of gradients at x alone, which moves by this much in place of ρ γ.  So
       with s = ∇f(x), E‖s - h‖_* has a mean over k of at most (1 + 2Q') ρ² γ M + ρ N.
    4. f(z^+) ≤ f(z) - γ ⟨∇f(z), D(h)⟩ + L ρ² γ²/2, and
       ⟨∇f(z), D(h)⟩ ≥ ⟨s, D(h)⟩ - ρ L |z - x| ≥ ‖s‖_* - 2 ‖s - h‖_* - ρ L |z - x|.  Sum over k; z^0 = x^0.
    5. ‖∇f(z)‖_* ≤ ‖s‖_* + ρ L |z - x|.

    The server needs all of h for "l2" and "spectral", so only norm="linf" can be served in blocks.

    Differences from the paper: C' compresses (x - z^+)/γ in place of z^+ - x, which is the same if C' keeps
    factors; the bound, with its γ, is the one proved here; one γ is for all layers.

    down      the server's compressor
    norm      the norm in which the server's step has the length γ: "l2", "linf" or "spectral"
    polar     how U V' is computed, as for EF21LMO
    eta       the weight η of the new gradient in the average v_i, or "decreasing"
    momentum  which average of gradients v_i is, as for EF21LMO: "heavy-ball", "igt" or "mvr"
    rounds    the number T of rounds for which theory is the best γ; needed if gamma is "theory"
    gap       F, a bound on f(x⁰) - f*, from which theory takes γ: for f ≥ 0, f(x⁰) will do
    """

    C: Contractive
    down: Contractive
    gamma: StepSize = "theory"
    norm: Norm = "spectral"
    polar: Polar = "svd"
    eta: RateOrDecreasing = 1.0
    momentum: GradientAverage = "heavy-ball"
    rounds: PositiveIntegerOrNone = None
    gap: Gap = None
    batch: BatchSize = None
    start: EstimateStart = "gradient"
    parts: PartsOfX = field(default=None, repr=False)  # those of x for "spectral"; ``bound`` sets it

    recalled: ClassVar[str] = "the powers of 2/(k+2) of the steps for eta=decreasing"
    paper: ClassVar[str] = "EF21-Muon, arXiv 2510.00643; parameter-agnostic, arXiv 2511.14501"

    WithPrevious: ClassVar[type] = TwoPoints

    @dataclass
    class Server:
        h: Array
        e: Array

    @property
    def separable(self) -> bool:  # type: ignore[override]
        return self.norm == "linf"

    def in_blocks(self, blocks: Blocks) -> EF21Muon:
        if not self.separable:
            raise ConfigError(
                f"EF21Muon with norm={self.norm!r} takes its step from whole vectors on its server, so it "
                "cannot be served in blocks: use server='shared', or norm='linf'; or EF21LMO, which takes it "
                "on all ranks."
            )
        return super().in_blocks(blocks)

    def answer(self, s: Server, r: Estimate, m: Array, key: Key) -> Bytes:
        s.h += m  # h^k = h^{k-1} + mean c_i
        s.e += self.direction(s.h, key)  # q = e + D(h^k)
        answer = self.down.compress(s.e, key)  # C'(q)
        self.down.decompress_add(answer, s.e, key, -1.0)  # e = q - C'(q)
        return answer

    def estimate(self, r: Estimate, broadcast: Message, key: Key) -> None:
        r.g[:] = 0
        self.down.decompress_add(broadcast.m, r.g, key)  # g^k = C'(q)
        self.keep_point(r)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        behind = lag(self.down.alpha(d, n))  # Q'
        return {"gamma": self.best_step(c, d, n, plain=0.5 + behind, spread=1 + 2 * behind)}
