"""Byz-VR-MARINA: VR-MARINA with a robust aggregate in place of the mean, as some workers may lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Annotated, ClassVar, Self

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.blocks import Blocks
from mpicomp.base.checks import integer, number
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Identity, Lossless, Unbiased
from mpicomp.keys import Key
from mpicomp.methods.base import Accumulator, Message
from mpicomp.methods.parameters import (
    BatchSize,
    Choice,
    PositiveInteger,
    PositiveIntegerOrNone,
    ProbabilityOrTheory,
    StepSize,
    Value,
)
from mpicomp.methods.support import robust
from mpicomp.methods.support.averaging import Each
from mpicomp.methods.support.coins import TwoPointMethod, share
from mpicomp.methods.support.estimating import TwoPoints
from mpicomp.methods.support.variance_theory import balanced_probability, probability, variance
from mpicomp.problems.constants import Constants

_check_distance = number("a distance, from 1e-300 to 1e300", lambda v: 1e-300 <= v <= 1e300)

NumberOfLiars = Annotated[int, Value(integer("a number of workers, 0 or more", lambda v: v >= 0))]
Distance = Annotated[float, Value(_check_distance)]
DistanceOrNone = Annotated[float | None, Value(_check_distance, also=(None,))]


@dataclass(frozen=True)
class ByzVRMARINA(TwoPointMethod):
    """VR-MARINA whose server takes a robust aggregate R in place of the mean.

    The coin c^k ~ Bern(p) is the same on all ranks; c^0 = 1 and g^0 = 0, so x^1 = x^0::

        all        x^{k+1} = x^k - γ g^k
        worker i   sends  ∇f_i(x^{k+1})                                          if c^k = 1
                          Q_i(1/b' Σ_{j ∈ J_i} (∇f_ij(x^{k+1}) - ∇f_ij(x^k)))    otherwise
        server     g_i^{k+1} = the message if c^k = 1, else g_i^k + the message
                   g^{k+1} = R(g_1^{k+1}, .., g_n^{k+1})

    J_i are ``batch`` = b' samples, the same at both points.  Up to b = ``liars`` of the workers may send any
    messages that can be decoded into finite numbers.  R is ``rule`` of the g_i, or of the means of random
    buckets of them; ``support.robust`` has the rules.

    The server keeps all g_i, n d numbers, and broadcasts g, or in a compressed round its change: where R is
    not the mean, nobody else can compute it, and it has up to d numbers.  With estimates="common" the server
    keeps nothing, g_i^{k+1} = g^k + the message, and each round needs n d numbers all the same.  A message
    that says nothing of most coordinates then gives them the value of g^k: medians of such g_i do not move.
    rule="mean" with bucket=1 is VR-MARINA, bit for bit, and keeps no g_i.

    theory: p = min{ζ/d, b'/(m + b')} as for VR-MARINA, and for "median" and "trimmed" with bucket=1 and
    estimates="own"::

        γ = 1/(L + √((1-p)/p) (√(2κW) + √M)),   W = ω L_+² + (1 + ω) L_σ²/b',
        M = (A n/G - B) L_+² + B L_±² + (A n + 1 - B) L_σ²/(b' G),   G = n - b

    with κ of ``support.robust``.  The constants are those of the G workers that do not lie, and f their mean.
    Then (1/T) Σ E |∇f(x^k)|² ≤ 2 (f(x^0) - f*)/(γT) + (2κ + √(2κM/W)) ζ², ζ² being the largest
    mean |∇f_i - ∇f|².  For κ = 0 it is VR-MARINA's.

    Proof.  All means are over the G workers, and g' = mean g_i.  Q is unbiased, so e = mean |g_i - ∇f_i|² and
    m = |g' - ∇f|² have E e⁺ ≤ (1-p)(e + W r) and E m⁺ ≤ (1-p)(m + M r), r = |x⁺ - x|²; the AB-inequality with
    vectors 0 for the liars gives M.  As mean |g_i - g'|² ≤ mean |g_i - ∇f|² ≤ 2e + 2ζ², κ gives
    |g - ∇f|² ≤ (1+t)(2κe + 2κζ²) + (1+1/t) m for every t > 0.  With the smoothness of f,
    f⁺ ≤ f - γ/2 |∇f|² - (1/(2γ) - L/2) r + γ/2 |g - ∇f|², so f + γ/(2p) ((1+t) 2κe + (1+1/t) m) falls by
    γ/2 |∇f|² - γ (1+t) κζ² if 1/γ² - L/γ ≥ (1-p)/p ((1+t) 2κW + (1+1/t) M), which γ above has for
    t = √(M/(2κW)).  At the start e = m = 0, up to the rounding of ``sync``.

    Differences from the paper: the g_i are kept, as in the authors' program, and estimates="common" has g^k
    in their place; batches of a finite sum are drawn without replacement; the server broadcasts g, and every
    rank takes the step; the step size of theory is the one above.

    p          the probability of a dense round
    rule       the rule R: median, trimmed, geometric, clipping, or mean
    liars      b: how many workers may lie, fewer than half of the buckets; trimmed leaves out b values at
               both ends
    bucket     the size of the random buckets, drawn anew in each round; 1 for none.  The paper has 2
    estimates  what a compressed change is added to: own, the g_i of the worker, or common, g
    nu         ν of the geometric median: g_i nearer to it than ν have equal weights
    radius     τ of centred clipping, around the g before; None for the median of the distances
    """

    Q: Unbiased
    batch: BatchSize = None
    gamma: StepSize = "theory"
    p: ProbabilityOrTheory = "theory"
    rule: Annotated[str, Choice(robust.RULES)] = "median"
    liars: NumberOfLiars = 1
    bucket: PositiveInteger = 1
    estimates: Annotated[str, Choice(("own", "common"))] = "own"
    nu: Distance = 1e-6
    radius: DistanceOrNone = None
    sync: Identity = Identity()
    down: Lossless = Lossless()
    workers: PositiveIntegerOrNone = field(default=None, repr=False)  # n, which ``resolve`` sets

    recalled: ClassVar[str] = "the algorithm; centred clipping"
    paper: ClassVar[str] = "Gorbunov, Horváth, Richtárik, Gidel, Byz-VR-MARINA (ICLR 2023), Algorithm 1"

    @dataclass
    class Server:
        g: Array  # g_i, shape (n, d); (0, d) where none is kept

    @property
    def separable(self) -> bool:  # type: ignore[override]
        return self.rule in robust.BY_COORDINATES

    @property
    def averages(self) -> bool:
        """Whether R is the mean of the g_i, which needs the sum of the messages alone."""
        return self.rule == "mean" and self.bucket == 1

    @property
    def most_liars(self) -> int:
        return 0 if self.averages else self.liars

    def resolve(
        self, constants: Callable[[], Constants], d: int, n: int, blocks: Blocks | None = None
    ) -> Self:
        self._check_liars(n)
        return replace(super().resolve(constants, d, n, blocks), workers=n)

    def in_blocks(self, blocks: Blocks) -> Self:
        if not self.separable:
            raise ConfigError(
                f"ByzVRMARINA with rule={self.rule!r} takes distances of whole vectors, so it cannot be "
                "served in blocks: use server='shared', or rule='median' or 'trimmed'."
            )
        return super().in_blocks(blocks)

    def server(self, x0: Array) -> Server:
        kept = (self.workers or 0) if self.estimates == "own" and not self.averages else 0
        return self.Server(np.zeros_like(x0, shape=(kept, x0.size)))

    def server_step(self, s: Server, r: TwoPoints, key: Key) -> Accumulator:
        if self.averages:
            return super().server_step(s, r, key)
        self._check_liars(key.n)
        C, dense, own = self.uplink(key), self.dense(key), self.estimates == "own"
        before = np.zeros_like(r.g) if dense else r.g
        rows = s.g[: key.n] if own else np.zeros_like(r.g, shape=(key.n, r.g.size))

        def take(sent_by: Key, up: Message) -> None:
            row = rows[sent_by.worker]
            if dense or not own:
                row[:] = before
            C.decompress_add(up.m, row, sent_by)  # g_i^{k+1}

        def close() -> Message:
            aggregate = self.aggregate(rows, r.g, key)  # g^{k+1}
            return Message(self.down.compress(aggregate - before, key))

        return Each(take, close)

    def aggregate(self, rows: Array, centre: Array, key: Key) -> Array:
        """R of the ``rows``, shape (n, d): an array of shape (d,); ``centre``, shape (d,), is g before."""
        rows = robust.bucketed(rows, self.bucket, key.shared("byzvrmarina/buckets"))
        match self.rule:
            case "median":
                return robust.median(rows)
            case "trimmed":
                return robust.trimmed_mean(rows, self.liars)
            case "geometric":
                return robust.geometric_median(rows, self.nu)
            case "clipping":
                return robust.centred_clipping(rows, centre, self.radius)
        return robust.mean(rows)

    def _check_liars(self, n: int) -> None:
        """Raise ``ConfigError`` unless more than half of the buckets of n workers have no liar."""
        buckets = -(-n // self.bucket)
        if self.rule != "mean" and 2 * self.liars >= buckets:
            raise ConfigError(
                f"ByzVRMARINA has liars={self.liars} of {n} workers in {buckets} buckets; allowed: fewer "
                "than half of the buckets. Take fewer liars, a smaller bucket, or more workers."
            )

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        found = {}
        if isinstance(self.p, str):
            balanced = balanced_probability(self, c, self.batch)
            found["p"] = min(share(self.Q, self.sync, d, n), balanced)
        if isinstance(self.gamma, str):
            kappa, G = self._kappa(n), n - (0 if self.averages else self.liars)
            p = probability(self.p, found)
            (a, b), omega, noise = self.Q.ab(d, n), self.Q.omega(d, n), variance(self, c, self.batch)
            own = omega * c.L_plus**2 + (1 + omega) * noise
            joint = (a * (n / G) - b) * c.L_plus**2 + b * c.L_pm**2
            joint += (a * (n / G) + (1 - b) / G) * noise
            spread = (sqrt(2 * kappa * own) + sqrt(joint)) ** 2 if kappa else joint
            found["gamma"] = 1 / (c.L + sqrt((1 - p) / p * spread))
        return found

    def _kappa(self, n: int) -> float:
        """κ of the rule.  Raises ``ConfigError`` where none is known."""
        if self.averages:
            return 0.0
        if self.rule in ("median", "trimmed") and self.bucket == 1 and self.estimates == "own":
            return (n if self.rule == "median" else self.liars) / (n - 2 * self.liars)
        raise ConfigError(
            f"ByzVRMARINA with rule={self.rule!r}, bucket={self.bucket} and estimates={self.estimates!r} has "
            "no theory step size: give gamma as a number, or take rule='median' or 'trimmed' with bucket=1 "
            "and estimates='own'."
        )
