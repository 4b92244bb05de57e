"""DCGD+, DIANA+, ADIANA+: a plain method with whitened coordinates on its uplink."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import (
    BlockSteps,
    Dithering,
    HardThreshold,
    Identity,
    Importance,
    RandK,
    Shrunk,
    Sign,
    TopK,
    VaryingSteps,
)
from mpicomp.keys import Key
from mpicomp.methods import ADIANA, DCGD, DIANA, ADIANAPlus, DCGDPlus, DIANAPlus
from mpicomp.methods.support.whitening import MOST
from mpicomp.problems import Constants, Objective, Problem
from tests.reference.adiana_plus import adiana_plus
from tests.reference.dcgd_plus import dcgd_plus
from tests.reference.diana_plus import diana_plus
from tests.support.smoothness_matrices import UPLINKS, Declared, fitted, quadratic, skewed
from tests.support.trajectories import (
    EIGHTH,
    HAND,
    PLACES,
    ROUNDS,
    assert_close,
    assert_mean,
    at_optimum,
    coin_of,
    every_place,
    gradients,
    mean_gradient,
    resolved,
    rounding,
    squares,
    start,
    trajectory,
    unbiased,
)

every_uplink = pytest.mark.parametrize("Q", UPLINKS, ids=repr)


# --- the transcriptions ---

# In round 0 the matrices are sent.  Round k + 1 of a run is round k of the transcription, and of the plain
# method, with the draws of round k.


def matrices(problem: Problem, n: int) -> list[np.ndarray]:
    return [problem.objective(i, n).smoothness_matrix() for i in range(n)]


def codec(Q, problem: Problem, seed: int, n: int):
    """What the server makes of a whitened v: through the bytes, with the key of the plain method's round."""
    coders = [fitted(Q, L) for L in matrices(problem, n)]

    def compress(i, k, *name_and_v):
        *name, v = name_and_v
        key = Key(seed, k, i, n)
        key = key.named(*name) if name else key
        return coders[i].decompress(coders[i].compress(v, key), v.size, key)

    return compress


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
    """Exact.  docs/methods.md#whitening: L_i = L_i I => DIANA+ is DIANA, and so for
    the other two, one round later."""
    problem, n = by_multiples_of_the_identity()
    got, wanted = (trajectory(start(m(Q), problem, n, seed=5), 20 + 1) for m in (plus, plain))
    assert np.array_equal(got[1:], wanted[:-1])
    assert not np.array_equal(wanted[0], wanted[-1])


def test_equal_steps_and_the_identity_are_qsgd():
    """Exact.  docs/methods.md#whitening: uniform h and L = L I => QSGD, which is
    DCGD with random dithering; d = 4^2."""
    n, s = 4, 3
    problem = Declared(squares(n, 16, seed=42), np.array([4.0 * np.eye(16)] * n))
    got = trajectory(start(DCGDPlus(VaryingSteps(4.0 * s), gamma=0.1), problem, n), 21)
    assert np.array_equal(got[1:], trajectory(start(DCGD(Dithering(s), gamma=0.1), problem, n), 20))


def test_otherwise_something_is_whitened():
    """The tests above can fail."""
    problem, n = skewed(4, 12, seed=43), 4
    got = trajectory(start(DIANAPlus(RandK(3), gamma=0.1, alpha=0.3), problem, n), 11)
    assert not np.allclose(got[-1], trajectory(start(DIANA(RandK(3), 0.1, 0.3), problem, n), 10)[-1])


# --- invariants ---


@every_uplink
@pytest.mark.parametrize("make", [DIANAPlus, ADIANAPlus])
def test_h_is_the_mean_of_h_i(make, Q):
    """docs/methods.md, DIANA, in every round; to rounding, as roots are irrational."""
    problem, n = PLACES[0]
    loop = start(make(Q), problem, n)
    for k in range(ROUNDS):
        loop.step(k)
        assert_mean(loop.replica.h, loop, "h")
    assert loop.replica.h.any()


def test_without_compression_the_step_is_along_the_gradient():
    """docs/methods.md#whitening: L_i^{1/2} L_i^{+1/2} is the identity on gradients, whatever the shifts."""
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
    """docs/methods.md, DIANA: start at x*, h_i = ∇f_i(x*): what is compressed is 0,
    for ever.  (ADIANA's weights sum to 1 only to rounding.)"""
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
    """docs/methods.md, DIANA: h_i → ∇f_i(x*), where DCGD+ would stop in a neighbourhood."""
    problem, n = quadratic(squares(4, 8, seed=61)), 4
    x_star = problem.problem.x_star
    loop = start(DIANAPlus(Q), problem, n)
    trajectory(loop, 500)
    scale = max(np.abs(grad(x_star)).max() for grad in gradients(problem, n))
    assert np.abs(loop.x - x_star).max() < 1e-4 * np.abs(x_star).max()
    for i, w in loop.workers.items():
        assert np.abs(w.h - problem.objective(i, n).grad(x_star)).max() < 1e-4 * scale


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
        return Constants(1.0, (1.0,) * n, 1.0, 0.0, 1.0, convex=True, diagonals=lambda: np.ones((n, self.d)))


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
