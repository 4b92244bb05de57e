"""DCGD+, DIANA+, ADIANA+: a plain method with whitened coordinates on its uplink.

Tolerances are those of test_methods.py; what is marked "exact" holds bit for bit.  "Section 7" is that of the
reference on smoothness-aware methods, whose algorithms and step sizes are as recalled.

Correspondence of rounds.  In round 0 the matrices are sent.  Round k + 1 of a run is round k of the
transcription, and of the plain method, with the draws of round k.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise, product
from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.compressors import (
    Bernoulli,
    BlockSteps,
    Dithering,
    HardThreshold,
    Identity,
    Importance,
    Natural,
    PermK,
    RandK,
    Shrunk,
    Sign,
    TopK,
    VaryingSteps,
)
from mpicomp.compressors.weighted import Weighted
from mpicomp.errors import ConfigError, MessageError
from mpicomp.keys import Key
from mpicomp.methods import ADIANA, DCGD, DIANA, ADIANAPlus, DCGDPlus, DIANAPlus
from mpicomp.methods.roots import decode_symmetric, encode_symmetric, roots
from mpicomp.methods.whitening import MOST, Whitened, variance
from mpicomp.problems import Constants, Objective, Problem, Quadratics
from mpicomp.suite import parse_suite
from mpicomp.tables import Line, notes
from tests.reference.adiana_plus import adiana_plus
from tests.reference.dcgd_plus import dcgd_plus
from tests.reference.diana_plus import diana_plus
from tests.trajectories import (
    EIGHTH,
    HAND,
    PLACES,
    ROUNDS,
    Squares,
    assert_close,
    assert_mean,
    at_optimum,
    coin_of,
    gradients,
    mean_gradient,
    resolved,
    rounding,
    squares,
    start,
    trajectory,
    unbiased,
)

rng = np.random.default_rng
UPLINKS = [
    RandK(2, values="f8"),
    Bernoulli(0.4, "f8"),
    Importance(2, values="f8"),
    VaryingSteps(6.0, values="f8"),
    BlockSteps(6.0, 3, values="f8"),
    Dithering(2, values="f8"),
    Identity("f8"),
    VaryingSteps(6.0),
    Importance(2),
]
every_place = pytest.mark.parametrize(("problem", "n"), PLACES, ids=["d12-n4", "d13-n5", "d4-n9"])
every_uplink = pytest.mark.parametrize("Q", UPLINKS, ids=repr)


@dataclass(frozen=True, eq=False)
class Declared(Problem):
    """Another problem, whose workers are given smoothness matrices of shape (n, d, d)."""

    problem: Problem
    matrices: np.ndarray = field(repr=False)

    def dimension(self):
        return self.problem.dimension()

    def x0(self):
        return self.problem.x0()

    def objective(self, i, n):
        return DeclaredObjective(self.problem.objective(i, n), self.matrices[i])

    def constants(self, n):
        tops = tuple(float(np.linalg.eigvalsh(L)[-1]) for L in self.matrices)
        mean = float(np.linalg.eigvalsh(self.matrices.mean(axis=0))[-1])
        return replace(self.problem.constants(n), L=mean, L_i=tops, diagonals=lambda: self.diagonals(n))


@dataclass(frozen=True, eq=False)
class DeclaredObjective(Objective):
    f: Objective
    L: np.ndarray

    def value(self, x):
        return self.f.value(x)

    def grad(self, x):
        return self.f.grad(x)

    def smoothness_matrix(self):
        return self.L.copy()


def quadratic(problem: Squares) -> Declared:
    """Quadratics with their Hessians as smoothness matrices."""
    return Declared(problem, np.array(problem.A))


def skewed(n: int, d: int, seed: int, **kind) -> Declared:
    """Quadratics whose coordinates are of very different curvature, differently from worker to worker."""
    plain = squares(n, d, seed, **kind)
    scales = np.geomspace(0.5, 2, d) * rng(seed).uniform(0.5, 2, (n, d))
    A = scales[:, :, None] * plain.A * scales[:, None, :] + 0.05 * np.eye(d)
    b = np.einsum("ijk,k->ij", A, rng(seed).normal(size=d)) if kind else plain.b
    return quadratic(Squares(A, b, plain.start))


def matrices(problem: Problem, n: int) -> list[np.ndarray]:
    return [problem.objective(i, n).smoothness_matrix() for i in range(n)]


def fitted(Q, L):
    """What the closed forms make of Q for L: section 7, its steps or odds from diag(L)."""
    open_weights = isinstance(Q, Weighted) and Q.weights is None
    return replace(Q, weights=tuple(np.diagonal(L).tolist())) if open_weights else Q


def codec(Q, problem: Problem, seed: int, n: int):
    """What the server makes of a whitened v: through the bytes, with the key of the plain method's round."""
    coders = [fitted(Q, L) for L in matrices(problem, n)]

    def compress(i, k, *name_and_v):
        *name, v = name_and_v
        key = Key(seed, k, i, n)
        key = key.named(*name) if name else key
        return coders[i].decompress(coders[i].compress(v, key), v.size, key)

    return compress


# --- the transcriptions ---


@every_place
@every_uplink
def test_dcgd_plus_is_its_transcription(problem, n, Q):
    loop = start(DCGDPlus(Q, gamma="theory*2"), problem, n, seed=31)
    compress, Ls = codec(Q, problem, 31, n), matrices(problem, n)
    wanted = dcgd_plus(gradients(problem, n), Ls, problem.x0(), loop.method.gamma, compress, ROUNDS)
    got = trajectory(loop, ROUNDS + 1)
    assert np.array_equal(got[0], got[1])
    assert_close(got[1:], wanted, rounding(Q))


@every_place
@every_uplink
def test_diana_plus_is_its_transcription(problem, n, Q):
    loop = start(DIANAPlus(Q, gamma="theory*2", alpha="theory*0.5"), problem, n, seed=32)
    method, compress, Ls = loop.method, codec(Q, problem, 32, n), matrices(problem, n)
    wanted = diana_plus(gradients(problem, n), Ls, problem.x0(), method.gamma, method.alpha, compress, ROUNDS)
    got = trajectory(loop, ROUNDS + 1)
    assert np.array_equal(got[0], got[1])
    assert_close(got[1:], wanted, rounding(Q))


@every_place
@every_uplink
def test_adiana_plus_is_its_transcription(problem, n, Q):
    p, eta, mu, alpha = 0.2, 0.2 / problem.constants(n).L_max, 0.02, 0.3
    loop = start(ADIANAPlus(Q, eta=eta, mu=mu, p=p, alpha=alpha), problem, n, seed=33)
    coin = coin_of("adiana/coin", 33, n, p)
    assert 3 < sum(coin(k) for k in range(ROUNDS)) < ROUNDS / 2
    compress, Ls = codec(Q, problem, 33, n), matrices(problem, n)
    wanted = adiana_plus(gradients(problem, n), Ls, problem.x0(), eta, mu, p, alpha, compress, coin, ROUNDS)
    got = trajectory(loop, ROUNDS + 1)
    assert np.array_equal(got[0], got[1])
    assert_close(got[1:], wanted, rounding(Q))


# --- special cases ---

# Whitening by a power of two commutes with these formats and roundings.
EQUIVARIANT = [
    *unbiased("f4"),
    VaryingSteps(6.0),
    BlockSteps(6.0, 3),
    Importance(3, values="f8"),
]


def by_multiples_of_the_identity() -> tuple[Declared, int]:
    """L_i = 4^a_i I, a_i different from worker to worker, of general f_i."""
    plain = squares(4, 12, seed=41)
    return Declared(plain, np.array([4.0**a * np.eye(12) for a in (1, 3, 2, 0)])), 4


@pytest.mark.parametrize("Q", EQUIVARIANT, ids=repr)
@pytest.mark.parametrize(
    ("plus", "plain"),
    [
        (lambda Q: DCGDPlus(Q, gamma=0.1), lambda Q: DCGD(Q, gamma=0.1)),
        (lambda Q: DIANAPlus(Q, gamma=0.1, alpha=0.3), lambda Q: DIANA(Q, gamma=0.1, alpha=0.3)),
        (
            lambda Q: ADIANAPlus(Q, eta=0.1, mu=0.2, p=0.3, alpha=0.3),
            lambda Q: ADIANA(Q, eta=0.1, mu=0.2, p=0.3, alpha=0.3),
        ),
    ],
    ids=["DCGD", "DIANA", "ADIANA"],
)
def test_where_every_matrix_is_a_multiple_of_the_identity_nothing_is_whitened(plus, plain, Q):
    """Exact.  Section 7: L_i = L_i I => DIANA+ is DIANA, and so for the other two, one round later."""
    problem, n = by_multiples_of_the_identity()
    got, wanted = (trajectory(start(m(Q), problem, n, seed=5), 20 + 1) for m in (plus, plain))
    assert np.array_equal(got[1:], wanted[:-1])
    assert not np.array_equal(wanted[0], wanted[-1])


def test_equal_steps_and_the_identity_are_qsgd():
    """Exact.  Section 7: uniform h and L = L I => QSGD, which is DCGD with random dithering; d = 4^2."""
    n, s = 4, 3
    problem = Declared(squares(n, 16, seed=42), np.array([4.0 * np.eye(16)] * n))
    got = trajectory(start(DCGDPlus(VaryingSteps(4.0 * s), gamma=0.1), problem, n), 21)
    assert np.array_equal(got[1:], trajectory(start(DCGD(Dithering(s), gamma=0.1), problem, n), 20))


def test_otherwise_something_is_whitened():
    """The tests above can fail."""
    problem, n = skewed(4, 12, seed=43), 4
    got = trajectory(start(DIANAPlus(RandK(3), gamma=0.1, alpha=0.3), problem, n), 11)
    assert not np.allclose(got[-1], trajectory(start(DIANA(RandK(3), 0.1, 0.3), problem, n), 10)[-1])


# --- the compressor in whitened coordinates ---


def deficient() -> tuple[np.ndarray, np.ndarray]:
    """L of rank 4 in 7 dimensions, one of which it does not know, and a vector in its range."""
    rows = rng(51).normal(size=(4, 7)) * np.geomspace(0.1, 3, 7)
    rows[:, 2] = 0
    return rows.T @ rows, rows.T @ rng(52).normal(size=4)


@pytest.mark.parametrize("Q", [q for q in UPLINKS if "f8" in repr(q)], ids=repr)
def test_unbiased_on_the_range(Q):
    """Section 7: E L^{1/2} C(L^{+1/2} v) = v for v in range(L), which gradients and their differences are."""
    L, v = deficient()
    root, inverse = roots(L, 7)
    C, n = Whitened(Q, {0: root}, inverse), 3000
    e = np.array(
        [C.decompress(C.compress(v, key), 7, key) - v for key in (Key(7, t, 0, 1) for t in range(n))]
    )
    scale = np.abs(v).max()
    assert (np.abs(e.mean(axis=0)) <= 6 * e.std(axis=0) / sqrt(n) + 1e-12 * scale).all()
    assert (e[:, 2] == 0).all() and v[2] == 0  # what no sample has is never touched
    if isinstance(Q, Identity):
        assert np.abs(e).max() <= 1e-13 * scale
        outside = np.linalg.svd(L)[0][:, 4:] @ np.ones(3)
        assert np.abs(C.decompress(C.compress(outside, Key(7, 0, 0, 1)), 7, Key(7, 0, 0, 1))).max() < 1e-12


@pytest.mark.parametrize("Q", [VaryingSteps(20.0), BlockSteps(12.0, 3), Importance(3), RandK(3)], ids=repr)
def test_the_error_is_that_of_the_norm_of_the_matrix(Q):
    """Section 7: E |C~(v) - v|^2 <= 𝓛 |L^{+1/2} v|^2, which is what the step sizes rest on."""
    L = skewed(1, 12, seed=53).matrices[0]
    root, inverse = roots(L, 12)
    C, v = Whitened(Q, {0: root}, inverse), rng(54).normal(size=12)
    keys = [Key(7, t, 0, 1) for t in range(3000)]
    e = np.array([np.sum((C.decompress(C.compress(v, key), 12, key) - v) ** 2) for key in keys])
    bound = variance(Q, np.diagonal(L), float(np.linalg.eigvalsh(L)[-1]), 1)
    assert e.mean() <= bound * np.sum((inverse @ v) ** 2) + 6 * e.std() / sqrt(e.size)


def second_moment(Q, L: np.ndarray) -> float:
    """The largest eigenvalue of E D L D, D = diag(C's gains) - I, over all supports: 𝓛 itself."""
    d = len(L)
    if isinstance(Q, RandK):
        masks = [np.isin(np.arange(d), kept) * 1.0 for kept in combinations(range(d), Q.k)]
        gain, odds = d / Q.k, [1 / len(masks)] * len(masks)
    else:
        masks = [np.array(mask) for mask in product([0.0, 1.0], repeat=d)]
        gain, odds = 1 / Q.q, [Q.q ** mask.sum() * (1 - Q.q) ** (d - mask.sum()) for mask in masks]
    diagonals = [np.diag(gain * mask - 1) for mask in masks]
    total = sum(p * D @ L @ D for p, D in zip(odds, diagonals, strict=True))
    return float(np.linalg.eigvalsh(total)[-1])


@pytest.mark.parametrize("Q", [RandK(1), RandK(2), RandK(6), Bernoulli(0.3)], ids=repr)
def test_the_bounds_for_sparsifiers(Q):
    """Section 7: max_j (1/q - 1) L_jj for coins, exactly; for RandK λ_max(d Diag(L) - L) ω/(d - 1) exactly,
    which is at most ω d/(d - 1) max_j L_jj.  Never above ω λ_max(L)."""
    for seed in range(5):
        L = skewed(1, 6, seed).matrices[0]
        w, top, omega = np.diagonal(L), float(np.linalg.eigvalsh(L)[-1]), Q.omega(6, 1)
        exact, bound = second_moment(Q, L), variance(Q, w, top, 1)
        assert exact <= bound * (1 + 1e-12) and bound <= omega * top * (1 + 1e-12)
        if isinstance(Q, Bernoulli):
            assert exact == pytest.approx(bound) == pytest.approx((1 / 0.3 - 1) * w.max())
        else:
            inner = float(np.linalg.eigvalsh(6 * np.diag(w) - L)[-1]) * omega / 5
            assert exact == pytest.approx(inner)
            assert bound == pytest.approx(omega * min(top, 6 / 5 * w.max()))
            assert bound <= 6 / 5 * exact * (1 + 1e-12)


def test_the_bounds_for_quantisers():
    """Section 7: tr(L)/beta or d tr(L)/(4 beta^2); equal steps sqrt(d) |Diag(L)|/beta; else ω λ_max."""
    w = np.array([1.0, 9.0, 4.0, 2.0])
    assert variance(VaryingSteps(8.0), w, 1e9, 1) == pytest.approx(4 * 16 / (4 * 64))
    assert variance(VaryingSteps(0.5), w, 1e9, 1) == pytest.approx(16 / 0.5)
    assert variance(Dithering(4), w, 1e9, 1) == pytest.approx(16 / (4 * 16))
    assert variance(Dithering(1), w, 1e9, 1) == pytest.approx(4.0)
    assert variance(BlockSteps(0.5, 2), w, 1e9, 1) == pytest.approx(sqrt(2) * (sqrt(82) + sqrt(20)) / 0.5)
    assert variance(Dithering(2**15 - 1), w, 1e9, 1) == pytest.approx(16 / (4 * (2**15 - 1) ** 2))
    for Q in (Natural(), Dithering(3, p="inf"), PermK(), RandK(2, layout="block")):
        assert variance(Q, w, 10.0, 4) == Q.omega(4, 4) * 10.0
    assert variance(VaryingSteps(8.0), w, 1e-3, 1) == pytest.approx(
        1e-3 * fitted(VaryingSteps(8.0), np.diag(w)).omega(4, 1)
    )


# --- roots and their bytes ---


@pytest.mark.parametrize("seed", range(3))
def test_the_root_and_its_inverse(seed):
    L = skewed(1, 9, seed).matrices[0]
    root, inverse = roots(L, 9)
    assert np.abs(root @ root - L).max() < 1e-14 * np.abs(L).max() * 9
    assert np.abs(root @ inverse - np.eye(9)).max() < 1e-12
    L, v = deficient()
    root, inverse = roots(L, 7)
    assert np.linalg.matrix_rank(root) == 4 and not root[2].any() and not inverse[:, 2].any()
    assert np.abs(inverse - np.linalg.pinv(root, rcond=1e-6)).max() < 1e-10 * np.abs(inverse).max()
    assert np.abs(root @ (inverse @ v) - v).max() < 1e-13 * np.abs(v).max()


def test_a_root_survives_the_wire():
    root, _ = roots(skewed(1, 9, 1).matrices[0], 9)
    message = encode_symmetric(root)
    assert len(message) == 8 * 9 * 10 // 2
    assert message[:24].view("<f8").tolist() == [root[0, 0], root[1, 0], root[1, 1]]
    again = decode_symmetric(message, 9)
    assert np.array_equal(again, again.T) and np.array_equal(np.tril(again), np.tril(root))
    with pytest.raises(MessageError):
        decode_symmetric(message[:-1], 9)


def each(Q) -> list:
    return [DCGDPlus(Q), DIANAPlus(Q), ADIANAPlus(Q)]


@pytest.mark.parametrize("method", each(VaryingSteps(6.0)), ids=lambda m: type(m).__name__)
def test_both_ends_hold_the_same_root(method):
    """To the bit, and the server in worker order."""
    problem, n = PLACES[0]
    loop = start(method, problem, n)
    loop.step(0)
    assert loop.server.roots.shape == (n, 12, 12)
    for i, w in loop.workers.items():
        assert np.array_equal(loop.server.roots[i], w.root)
        L = problem.objective(i, n).smoothness_matrix()
        assert np.abs(w.root @ w.root - L).max() < 1e-14 * np.abs(L).max() * 12
        assert np.abs(w.inverse @ w.root - np.eye(12)).max() < 1e-12


@pytest.mark.parametrize("method", each(RandK(3)), ids=lambda m: type(m).__name__)
def test_the_matrices_are_sent_once_and_counted(method):
    """8 d (d+1)/2 bytes a worker in round 0 and never again, in the bytes up and apart; 32 bits a number in
    the paper's count; the broadcast of round 0 says nothing."""
    problem, n = PLACES[0]
    loop = start(method, problem, n)
    messages = 2 if isinstance(method, ADIANAPlus) else 1
    header = messages - 1  # the length of all messages but the last
    loop.step(0)
    book = loop.ledger
    assert book.set_up_bytes == book.up_bytes == n * (8 * 78 + header)
    assert book.up.tolist() == [8 * 78 + header] * n
    assert book.paper_bits_up == n * 32 * 78
    assert book.down_bytes == n * header
    loop.step(1)
    assert book.set_up_bytes == n * (8 * 78 + header)
    assert book.up_bytes == book.set_up_bytes + n * (12 * messages + header)
    assert book.paper_bits_up == n * 32 * (78 + 3 * messages)


def test_a_method_without_a_set_up_has_none():
    problem, n = PLACES[0]
    loop = start(DIANA(RandK(3)), problem, n)
    trajectory(loop, 3)
    assert loop.ledger.up_bytes > 0 == loop.ledger.set_up_bytes


# --- invariants ---


@every_uplink
@pytest.mark.parametrize("make", [DIANAPlus, ADIANAPlus])
def test_h_is_the_mean_of_h_i(make, Q):
    """Section 2.2, in every round; to rounding, as roots are irrational."""
    problem, n = PLACES[0]
    loop = start(make(Q), problem, n)
    for k in range(ROUNDS):
        loop.step(k)
        assert_mean(loop.replica.h, loop, "h")
    assert loop.replica.h.any()


def test_without_compression_the_step_is_along_the_gradient():
    """Section 7: L_i^{1/2} L_i^{+1/2} is the identity on gradients, whatever the shifts."""
    problem, n = PLACES[0]
    for method in (DCGDPlus(Identity("f8"), EIGHTH), DIANAPlus(Identity("f8"), EIGHTH, alpha=0.3)):
        loop = start(method, problem, n)
        loop.step(0)
        for k in range(1, 21):
            x = loop.x.copy()
            loop.step(k)
            wanted = x - EIGHTH * mean_gradient(problem, n, x)
            assert np.abs(loop.x - wanted).max() <= 1e-13 * np.abs(wanted).max()


@every_uplink
@pytest.mark.parametrize("make", [DIANAPlus, ADIANAPlus])
def test_the_optimum_is_kept(make, Q):
    """Section 2.2: start at x*, h_i = ∇f_i(x*): what is compressed is 0, for ever.  (ADIANA's weights sum to
    1 only to rounding.)"""
    plain, n = at_optimum(), 4
    problem = Declared(plain, plain.A @ plain.A + np.eye(8))
    scale = np.abs(problem.x0()).max()
    loop = start(make(Q), problem, n)
    for i, w in loop.workers.items():
        w.h[:] = problem.objective(i, n).grad(problem.x0())
        assert w.h.any()
    for x in trajectory(loop, 30):
        assert np.abs(x - problem.x0()).max() <= (0 if make is DIANAPlus else 1e-14 * 4 * scale)


@pytest.mark.parametrize("Q", [VaryingSteps(10.0), BlockSteps(10.0, 4), Importance(4), RandK(4)], ids=repr)
def test_diana_plus_learns_the_gradients_at_the_optimum(Q):
    """Section 2.2: h_i → ∇f_i(x*), where DCGD+ would stop in a neighbourhood."""
    problem, n = quadratic(squares(4, 8, seed=61)), 4
    x_star = problem.problem.x_star
    loop = start(DIANAPlus(Q), problem, n)
    trajectory(loop, 500)
    scale = max(np.abs(grad(x_star)).max() for grad in gradients(problem, n))
    assert np.abs(loop.x - x_star).max() < 1e-4 * np.abs(x_star).max()
    for i, w in loop.workers.items():
        assert np.abs(w.h - problem.objective(i, n).grad(x_star)).max() < 1e-4 * scale


# --- step sizes ---

W = (
    (1.0, 9.0, 4.0, 2.0),
    (1.0, 1.0, 1.0, 1.0),
    (4.0, 4.0, 0.0, 1.0),
    (2.0, 2.0, 2.0, 2.0),
)  # largest trace 16
TOPS = (10.0, 2.0, 5.0, 4.0)
SMOOTH = replace(HAND, L_i=TOPS, diagonals=lambda: np.array(W))  # L = 3, mu = 0.1


def largest(Q) -> tuple[float, float]:
    """𝓛_max and ω_max as the definitions have them: over workers, of the compressors fitted to them."""
    coders = [fitted(Q, np.diag(w)) for w in W]
    bounds = [variance(Q, np.array(w), top, 4) for w, top in zip(W, TOPS, strict=True)]
    return max(bounds), max(c.omega(4, 4) for c in coders)


def test_the_largest_variance_by_hand():
    assert largest(VaryingSteps(8.0))[0] == pytest.approx(1 / 4)  # d tr/(4 beta^2), of the first worker
    # |h|^2/4 = tr sum_j (1/L_jj)/(4 beta^2): 16 (1 + 1/9 + 1/4 + 1/2) of the first worker; the others have
    # 4 · 4, 9 (1/4 + 1/4 + 1) and 8 · 2.  The other bound, |h|, is larger.
    assert largest(VaryingSteps(8.0))[1] == pytest.approx(16 * (1 + 1 / 9 + 1 / 4 + 1 / 2) / 256)
    assert largest(Bernoulli(0.25)) == (pytest.approx(27.0), pytest.approx(3.0))
    assert largest(RandK(1)) == (pytest.approx(30.0), pytest.approx(3.0))  # 3 min{10, 9 · 4/3}
    assert largest(Dithering(1)) == (pytest.approx(4.0), pytest.approx(1.0))  # tr/4
    assert largest(Natural()) == (pytest.approx(10 / 8), pytest.approx(1 / 8))
    assert largest(Importance(2, (1.0,) * 4)) == (pytest.approx(9.0), pytest.approx(1.0))  # coins of 1/2


STEPPED = [
    VaryingSteps(8.0),
    BlockSteps(6.0, 2),
    Importance(2),
    Bernoulli(0.25),
    RandK(1),
    Dithering(1),
    Natural(),
]


@pytest.mark.parametrize("Q", STEPPED, ids=repr)
def test_steps(Q):
    """Section 7, with n = 4 workers."""
    spread, omega = largest(Q)
    assert resolved(DCGDPlus(Q), 4, 4, SMOOTH).gamma == pytest.approx(1 / (3 + 2 * spread / 4))
    diana = resolved(DIANAPlus(Q), 4, 4, SMOOTH)
    assert (diana.gamma, diana.alpha) == (
        pytest.approx(1 / (3 + 6 * spread / 4)),
        pytest.approx(1 / (1 + omega)),
    )
    assert resolved(DIANAPlus(Q, gamma="theory*8", alpha=0.5), 4, 4, SMOOTH).gamma == pytest.approx(
        8 * diana.gamma
    )
    adiana = resolved(ADIANAPlus(Q), 4, 4, SMOOTH)
    p = min(1, max(1, sqrt(4 * 3 / (32 * spread)) - 1) / (2 * (1 + omega)))
    eta = min(1 / (2 * 3), 4 / (64 * spread * (2 * p * (omega + 1) + 1) ** 2))
    assert (adiana.p, adiana.eta) == (pytest.approx(p), pytest.approx(eta))
    assert (adiana.mu, adiana.alpha) == (0.1, pytest.approx(1 / (1 + omega)))
    chosen = resolved(ADIANAPlus(Q, p=0.25), 4, 4, SMOOTH)
    assert chosen.eta == pytest.approx(min(1 / 6, 4 / (64 * spread * (0.5 * (omega + 1) + 1) ** 2)))
    halved = resolved(ADIANAPlus(Q, p="theory*0.5"), 4, 4, SMOOTH)
    assert halved.p == pytest.approx(p / 2)
    assert halved.eta == pytest.approx(min(1 / 6, 4 / (64 * spread * (p * (omega + 1) + 1) ** 2)))


@pytest.mark.parametrize("Q", [RandK(1, mask="shared"), PermK()], ids=repr)
def test_steps_where_draws_are_not_independent(Q):
    """[D] Jensen: the error of the mean is at most the mean error, and 𝓛_max takes the place of 𝓛_max/n."""
    spread, _ = largest(Q)
    assert spread > 0
    assert resolved(DCGDPlus(Q), 4, 4, SMOOTH).gamma == pytest.approx(1 / (3 + 2 * spread))
    assert resolved(DIANAPlus(Q), 4, 4, SMOOTH).gamma == pytest.approx(1 / (3 + 6 * spread))


def test_steps_without_compression():
    assert resolved(DCGDPlus(Identity()), 4, 4, SMOOTH).gamma == pytest.approx(1 / 3)
    diana, adiana = (resolved(make(Identity()), 4, 4, SMOOTH) for make in (DIANAPlus, ADIANAPlus))
    assert (diana.gamma, diana.alpha) == (pytest.approx(1 / 3), 1)
    assert (adiana.eta, adiana.p, adiana.alpha) == (pytest.approx(1 / 6), 1, 1)


def test_smoothness_aware_steps_are_larger():
    """What the theory promises, by 𝓛_max ≤ ω L_max and L ≤ L_max; and the closed forms do better than equal
    steps and odds of the same budget."""
    problem, n = PLACES[0]
    c = problem.constants(n)
    for plain, plus in ((DCGD, DCGDPlus), (DIANA, DIANAPlus)):
        for Q in (RandK(2), Dithering(1), VaryingSteps(sqrt(12)), Importance(2), BlockSteps(4.0, 3)):
            assert resolved(plus(Q), 12, n, c).gamma > resolved(plain(Q), 12, n, c).gamma
        for equal, fitted in ((Bernoulli(1 / 6), Importance(2)), (BlockSteps(2.0, 1), VaryingSteps(2.0))):
            assert resolved(plus(fitted), 12, n, c).gamma > resolved(plus(equal), 12, n, c).gamma
        fine = [resolved(plus(Q), 12, n, c).gamma for Q in (BlockSteps(4.0, 1), VaryingSteps(4.0))]
        assert fine[0] == pytest.approx(fine[1], rel=1e-14)  # beyond d/4 = 3 there is nothing in it


# --- theorems, with theory's steps ---

AWARE = [VaryingSteps(4.0), BlockSteps(6.0, 3), Importance(3), RandK(3), Bernoulli(0.25)]


@pytest.mark.parametrize("Q", AWARE, ids=repr)
def test_diana_plus_contracts_linearly(Q):
    """With V = |x - x*|^2 + M gamma^2 mean |h_i - ∇f_i(x*)|^2 in the norm of L_i^+, M = 4𝓛_max/(n alpha):
    E V_k <= max{1 - gamma mu, 1 - alpha/2}^k V_0.  [D, as for DIANA: E |g - ∇f|^2 is at most 𝓛_max/n times
    mean |∇f_i - h_i|^2 in that norm, in which 2 D_{f_i} bounds |∇f_i(x) - ∇f_i(x*)|^2.]  The mean over 4
    seeds, no slack."""
    problem, n = skewed(4, 8, seed=63), 4
    c, x_star, Ls = problem.constants(n), problem.problem.x_star, problem.matrices
    spread = max(variance(Q, np.diagonal(L), top, n) for L, top in zip(Ls, c.L_i, strict=True)) / n
    limits = [grad(x_star) for grad in gradients(problem, n)]
    values = []
    for seed in range(4):
        loop = start(DIANAPlus(Q), problem, n, seed)
        gamma, alpha = loop.method.gamma, loop.method.alpha
        assert gamma == pytest.approx(1 / (c.L + 6 * spread))
        loop.step(0)
        history = []
        for k in range(151):
            if k % 15 == 0:
                apart = [w.h - limits[i] for i, w in loop.workers.items()]
                far = np.mean([e @ np.linalg.solve(L, e) for e, L in zip(apart, Ls, strict=True)])
                history.append(np.sum((loop.x - x_star) ** 2) + 4 * spread / alpha * gamma**2 * far)
            loop.step(k + 1)
        values.append(history)
    rate = max(1 - gamma * c.mu, 1 - alpha / 2)
    mean = np.mean(values, axis=0)
    assert mean[-1] < mean[0] / 10
    assert all(v <= rate ** (15 * j) * mean[0] for j, v in enumerate(mean))


@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("Q", AWARE, ids=repr)
def test_dcgd_plus_contracts_to_a_neighbourhood(Q, common):
    """[D] E |x_k - x*|^2 <= (1 - gamma mu)^k |x_0 - x*|^2 + 2 gamma 𝓛_max/(n mu) mean |∇f_i(x*)|^2, in the
    norm of L_i^+; the second term is 0 where the ∇f_i(x*) are.  The mean over 4 seeds, no slack."""
    problem, n = skewed(4, 8, seed=64, **({"common_optimum": True} if common else {})), 4
    c, x_star, Ls = problem.constants(n), problem.problem.x_star, problem.matrices
    spread = max(variance(Q, np.diagonal(L), top, n) for L, top in zip(Ls, c.L_i, strict=True)) / n
    limits = [grad(x_star) for grad in gradients(problem, n)]
    noise = np.mean([e @ np.linalg.solve(L, e) for e, L in zip(limits, Ls, strict=True)])
    assert common == (noise < 1e-20)
    values = []
    for seed in range(4):
        loop = start(DCGDPlus(Q), problem, n, seed)
        values.append([np.sum((x - x_star) ** 2) for x in trajectory(loop, 121)[1::10]])
    gamma = loop.method.gamma
    mean = np.mean(values, axis=0)
    assert all(
        v <= (1 - gamma * c.mu) ** (10 * j) * mean[0] + 2 * gamma * spread / c.mu * noise
        for j, v in enumerate(mean)
    )


@pytest.mark.parametrize("Q", AWARE, ids=repr)
def test_adiana_plus_converges_linearly_by_theory(Q):
    """By a constant factor over each of equal spans of rounds, to the optimum."""
    problem, n = skewed(4, 8, seed=65), 4
    loop = start(ADIANAPlus(Q), problem, n, seed=1)
    errors = [np.sum((y - problem.problem.x_star) ** 2) for y in trajectory(loop, 3 * 200)[::200]]
    assert all(new < 0.5 * old for old, new in pairwise(errors)), errors


# --- what is refused ---


@pytest.mark.parametrize(
    "Q", [TopK(2), Sign(), Shrunk(RandK(2)), HardThreshold(0.1), "randk", None], ids=repr
)
@pytest.mark.parametrize("make", [DCGDPlus, DIANAPlus, ADIANAPlus])
def test_a_compressor_of_the_wrong_kind_is_refused(make, Q):
    with pytest.raises(ConfigError, match=r"needs Q to be unbiased.*RandK\(k=0\.01\)"):
        make(Q)


@dataclass(frozen=True)
class Wide(Problem):
    """d ones; nothing as large as d² is ever formed."""

    d: int

    def dimension(self):
        return self.d

    def objective(self, i, n):
        return Bare()

    def constants(self, n):
        return Constants(1.0, (1.0,) * n, 1.0, 0.0, 1.0, diagonals=lambda: np.ones((n, self.d)))


@dataclass(frozen=True)
class Bare(Objective):
    """x'x/2, and no smoothness matrix."""

    def value(self, x):
        return float(np.sum(x * x) / 2)

    def grad(self, x):
        return x.copy()


@pytest.mark.parametrize(
    "method",
    [DCGDPlus(RandK(1)), DCGDPlus(RandK(1), 0.1), DIANAPlus(RandK(1)), ADIANAPlus(RandK(1))],
    ids=repr,
)
def test_matrices_that_are_too_many_are_refused(method):
    """Before any is formed, by theory and in round 0, naming d and n."""
    n, d = 4, 4097
    assert n * (d - 1) ** 2 == MOST < n * d**2
    with pytest.raises(ConfigError, match=r"d = 4097 and n = 4 .*without the plus"):
        start(method, Wide(d), n).step(0)


def test_a_problem_without_matrices_is_refused():
    with pytest.raises(ConfigError, match=r"Bare has no smoothness matrix.*without the plus"):
        start(DCGDPlus(RandK(1), 0.1), Wide(3), 2).step(0)
    with pytest.raises(ConfigError, match=r"DIANAPlus.*smoothness matrices.*give gamma and alpha"):
        resolved(DIANAPlus(RandK(1)), 12, 4, HAND)


@pytest.mark.parametrize(
    ("L", "match"),
    [
        (np.eye(3)[:2], "shape"),
        (np.ones(3), "shape"),
        (None, "shape"),
        (np.diag([1.0, np.nan, 1.0]), "finite"),
        (np.tri(3), "symmetric"),
        (np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), "negative"),
    ],
    ids=str,
)
def test_a_matrix_that_is_none_is_refused(L, match):
    with pytest.raises(ConfigError, match=match):
        roots(L, 3)


@pytest.mark.parametrize("mu", [None, 0.0])
def test_the_theorems_need_convexity(mu):
    with pytest.raises(ConfigError, match="mu"):
        resolved(ADIANAPlus(RandK(3)), 4, 4, replace(SMOOTH, mu=mu))
    if mu is None:
        with pytest.raises(ConfigError, match="convex"):
            resolved(DIANAPlus(RandK(3)), 4, 4, replace(SMOOTH, mu=mu))


@pytest.mark.parametrize(
    ("method", "name", "values"),
    [
        (DIANAPlus(RandK(2)), "alpha", [0.0, 1.5, "theory*x", None]),
        (DIANAPlus(RandK(2)), "down", [RandK(2), TopK(2)]),
        (DCGDPlus(RandK(2)), "down", [RandK(2), TopK(2)]),
        (ADIANAPlus(RandK(2)), "p", [0.0, 1.5, "always"]),
        (ADIANAPlus(RandK(2)), "mu", [0, -1.0, None]),
    ],
    ids=lambda v: type(v).__name__ if hasattr(v, "paper") else str(v),
)
def test_other_parameters_are_checked_too(method, name, values):
    for value in values:
        with pytest.raises(ConfigError, match=name):
            replace(method, **{name: value})


# --- a run ---


def test_the_table_says_what_the_set_up_took():
    suite = parse_suite('problem = "quadratics"\nworkers = 4\nrounds = 9\n[[method]]\nmethod = "gd"\n')
    line = Line("", "theory", False, 1, 1, 0, 0)
    with_set_up = [replace(line, set_up_bytes_per_worker=b) for b in (0.0, 2400.0, 2401.0, 361200.0)]
    said = [sentence for sentence in notes(with_set_up, suite) if "set up" in sentence]
    assert said == ["Up includes what a worker of some methods sends once, to set up: 2.4 KB, 361 KB."]
    assert not any("set up" in sentence for sentence in notes([line], suite))


def test_the_record_has_the_set_up_apart():
    run = mpicomp.run(
        DIANAPlus(VaryingSteps(6.0)), Quadratics(d=13, noise=0.4), workers=4, rounds=10, every=1
    )
    summary = run.summary()
    assert summary["set_up_bytes"] == 4 * 8 * 13 * 14 // 2 == run.rows[1].up_bytes
    assert run.rows[0].f == run.rows[1].f != run.rows[2].f  # the set-up takes a round and no step
    assert summary["up_bytes"] == run.rows[-1].up_bytes > summary["set_up_bytes"]
