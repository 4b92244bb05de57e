"""GD, AGD, DCGD, DIANA, MARINA, EF14 and EF21 against plain transcriptions of their papers, and against the
identities and theorems they obey.

Correspondence of rounds.  Round k of a run turns x^k into x^{k+1} with the draws of ``Key(seed, k, i, n)``.
GD, AGD, DCGD, DIANA and EF14 are so numbered in their papers.  MARINA and EF21 form g^k in round k: round 0
is their initialisation (MARINA's dense g^0, EF21's g_i^0 = C(grad f_i(x^0))), and the message that makes
g^{k+1} in the paper's round k is our round k+1.  The transcriptions number messages by the g they make.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from mpicomp import compressors
from mpicomp.compressors import (
    Bernoulli,
    HardThreshold,
    Identity,
    Lazy,
    Lossless,
    Natural,
    PermK,
    Quantized,
    RandK,
    Shrunk,
    Sign,
    Ternary,
    TopK,
)
from mpicomp.keys import Key
from mpicomp.methods import AGD, DCGD, DIANA, EF14, EF21, GD, MARINA
from mpicomp.problems import Problem, Quadratics
from tests.reference.agd import agd
from tests.reference.dcgd import dcgd
from tests.reference.diana import diana
from tests.reference.ef14 import ef14
from tests.reference.ef21 import ef21
from tests.reference.gd import gd
from tests.reference.marina import marina
from tests.support.trajectories import (
    ABSOLUTE,
    CONTRACTIVE,
    EIGHTH,
    EXACT,
    PLACES,
    ROUNDS,
    UNBIASED,
    Entropy,
    Squares,
    assert_close,
    assert_equal,
    beginning,
    codec,
    every_place,
    everywhere,
    grad_norm_sq,
    gradients,
    integers,
    mean_gradient,
    objective_value,
    rng,
    rounding,
    squares,
    start,
    trajectory,
    unbiased,
)

# --- the transcriptions ---


def travelled_mean(problem: Problem, n: int, values: str):
    """The mean gradient as GD's ranks know it: rounded on the way up and once more on the way down.

    A mean of a few float32 is often a tie for the second rounding, so it is summed as the server does.
    """
    through = codec(Identity(values), 0, n)

    def gradient(x):
        mean = np.zeros_like(x)
        for g in gradients(problem, n):
            mean += through(0, 0, g(x)) * (1 / n)
        return through(0, 0, mean)

    return gradient


@every_place
@pytest.mark.parametrize("values", ["f4", "f8"])
def test_gd_is_its_transcription(problem, n, values):
    """docs/methods.md, GD; the mean travels in ``values`` as well: in f4 it is the
    rounded mean of rounded ones."""
    gradient = travelled_mean(problem, n, values)
    loop = start(GD(values=values), problem, n)
    assert_close(trajectory(loop, 100), gd([gradient], problem.x0(), loop.method.gamma, 100), 1e-12)


@every_place
@pytest.mark.parametrize("values", ["f4", "f8"])
@pytest.mark.parametrize("mu", ["theory", 0])
def test_agd_is_its_transcription(problem, n, values, mu):
    """docs/methods.md, AGD, both momenta."""
    gradient = travelled_mean(problem, n, values)
    loop = start(AGD(mu=mu, values=values), problem, n)
    assert loop.method.mu == (problem.constants(n).mu if mu else 0)
    wanted = agd([gradient], problem.x0(), 1 / loop.method.gamma, loop.method.mu, 100)
    assert_close(trajectory(loop, 100), wanted, rounding(loop.method))


@everywhere("Q", UNBIASED)
def test_dcgd_is_its_transcription(problem, n, Q):
    """docs/methods.md, DCGD."""
    loop = start(DCGD(Q), problem, n, seed=11)
    wanted = dcgd(gradients(problem, n), problem.x0(), loop.method.gamma, codec(Q, 11, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere("Q", UNBIASED)
def test_diana_is_its_transcription(problem, n, Q):
    """docs/methods.md, DIANA, h_i = 0 at the start."""
    loop = start(DIANA(Q, gamma="theory*2"), problem, n, seed=12)
    gamma, alpha = loop.method.gamma, loop.method.alpha
    wanted = diana(gradients(problem, n), problem.x0(), gamma, alpha, codec(Q, 12, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere("Q", UNBIASED)
def test_marina_is_its_transcription(problem, n, Q):
    """docs/methods.md, MARINA; our round k makes g^k and round 0 is dense.  Dense
    messages are in f4 where Q's are."""
    sync = Identity("f8" if rounding(Q) == 1e-12 else "f4")
    loop = start(MARINA(Q, p=0.2, sync=sync), problem, n, seed=13)
    dense = codec(sync, 13, n)

    def coin(k):
        return Key(13, k, None, n).shared("marina/coin").coin(0.2)

    assert 0 < sum(coin(k) for k in range(1, ROUNDS)) < ROUNDS / 2  # both kinds of round occur
    wanted = marina(
        gradients(problem, n),
        problem.x0(),
        loop.method.gamma,
        codec(Q, 13, n),
        coin,
        ROUNDS,
        lambda i, v: dense(i, 0, v),
    )
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere("C", [*CONTRACTIVE, *ABSOLUTE])
def test_ef14_is_its_transcription(problem, n, C):
    """docs/methods.md, EF14, e_i = 0 at the start; with a hard threshold, too."""
    gamma = 0.5 * compressors_alpha(C, problem.dimension(), n) / problem.constants(n).L_max
    loop = start(EF14(C, gamma=gamma), problem, n, seed=14)
    wanted = ef14(gradients(problem, n), problem.x0(), gamma, codec(C, 14, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


def compressors_alpha(C, d: int, n: int) -> float:
    return C.alpha(d, n) if isinstance(C, compressors.Contractive) else 1.0


@everywhere("C", CONTRACTIVE)
def test_ef21_is_its_transcription(problem, n, C):
    """docs/methods.md, EF21; our round k makes g^k, and g_i^0 = C(grad f_i(x^0)) comes of g_i^{-1} = 0."""
    loop = start(EF21(C, gamma="theory*2"), problem, n, seed=15)
    first = beginning("compressed", C, 15, n)
    wanted = ef21(gradients(problem, n), problem.x0(), loop.method.gamma, codec(C, 15, n), ROUNDS, first)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@pytest.mark.parametrize(
    ("method", "reference"),
    [
        (DCGD(RandK(2), gamma=0.1, down=Lossless("bf16")), dcgd),
        (EF14(TopK(2), gamma=0.1, down=Lossless("bf16")), ef14),
    ],
)
def test_a_rounded_broadcast_is_what_every_rank_goes_on_with(method, reference):
    """``down`` in bf16: x^{k+1} - x^k is a bf16 vector times the step, and not the mean itself."""
    problem = squares(4, 6, seed=8)
    loop = start(method, problem, 4, seed=3)
    step = 0.1 if reference is dcgd else 1.0
    for k in range(20):
        x = loop.replica.x.copy()
        loop.step(k)
        sent = np.float32((x - loop.replica.x) / step)
        # 8 significant bits, found again to the rounding of the subtraction.
        nearest = ((sent.view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)
        assert np.allclose(sent, nearest, rtol=1e-6, atol=1e-12)
    exact = replace(method, down=Lossless())
    assert not np.array_equal(trajectory(start(exact, problem, 4, seed=3), 20)[-1], loop.replica.x)


# --- identities that hold bit for bit ---


def lossless() -> list:
    whole = Identity("f8")
    return [
        GD(gamma=EIGHTH, values="f8"),
        AGD(gamma=EIGHTH, mu=8.0, values="f8"),
        DCGD(whole, gamma=EIGHTH),
        DCGD(Lossless(), gamma=EIGHTH),
        DCGD(RandK(8, values="f8"), gamma=EIGHTH),  # k = d: gain 1
        DIANA(whole, gamma=EIGHTH),
        DIANA(whole, gamma=EIGHTH, alpha=0.5),
        MARINA(whole, gamma=EIGHTH, p=0.01, sync=whole),
        MARINA(whole, gamma=EIGHTH, p=0.5, sync=whole),
        MARINA(RandK(2, values="f8"), gamma=EIGHTH, p=1.0, sync=whole),
        MARINA(Natural(), gamma=EIGHTH, p=1.0, sync=whole),
        EF14(whole, gamma=EIGHTH),
        EF14(TopK(8, values="f8"), gamma=EIGHTH),
        EF14(HardThreshold(0.0, values="f8"), gamma=EIGHTH),
        EF21(whole, gamma=EIGHTH),
        EF21(TopK(8, values="f8"), gamma=EIGHTH),
    ]


@pytest.mark.parametrize("method", lossless(), ids=repr)
def test_without_compression_every_method_is_gd(method):
    """Exact.  docs/methods.md, AGD (mu = L), DCGD, DIANA (any alpha), MARINA (any
    p; p = 1), EF14 (lambda = 0), EF21."""
    problem = integers(4, 8)
    wanted = gd(gradients(problem, 4), problem.x0(), EIGHTH, EXACT)
    assert_equal(trajectory(start(method, problem, 4), EXACT), wanted)


@pytest.mark.parametrize("layout", ["uniform", "block"])
@pytest.mark.parametrize(
    ("n", "d", "kind"),
    [
        (4, 8, {"identical": True}),
        (4, 6, {"identical": True}),  # blocks of 1 and 2
        (8, 4, {"identical": True}),  # two copies of each coordinate
        (4, 8, {"same_hessian": True}),
        (4, 7, {"same_hessian": True}),
        (8, 4, {"same_hessian": True}),
    ],
)
def test_marina_with_permk_is_gd_where_hessians_agree(layout, n, d, kind):
    """Exact.  docs/methods.md, MARINA: identical f_i; L_pm = 0 with heterogeneous
    b_i, as gradient differences agree."""
    problem = integers(n, d, **kind)
    method = MARINA(PermK(layout, values="f8"), gamma=EIGHTH, p=0.1, sync=Identity("f8"))
    assert len(set(map(bytes, problem.b))) == (1 if "identical" in kind else n)
    wanted = gd(gradients(problem, n), problem.x0(), EIGHTH, EXACT)
    assert_equal(trajectory(start(method, problem, n), EXACT), wanted)


@pytest.mark.parametrize(("n", "d"), [(5, 13), (13, 4), (3, 3), (1, 6)])
def test_marina_with_permk_is_gd_for_any_n_and_d(n, d):
    """The same to rounding, as 1/n is no power of two; also where copies leave blanks, and for one worker."""
    problem = squares(n, d, seed=2, identical=True)
    loop = start(MARINA(PermK(values="f8"), p=0.05, sync=Identity("f8")), problem, n)
    wanted = gd(gradients(problem, n), problem.x0(), loop.method.gamma, 100)
    assert_close(trajectory(loop, 100), wanted, 1e-12)


def test_marina_with_randk_is_not_gd():
    """The two tests above can fail: a RandK that sends as much does not have the property."""
    problem = integers(4, 8, identical=True)
    method = MARINA(RandK(2, values="f8"), gamma=EIGHTH, p=0.1, sync=Identity("f8"))
    assert not np.array_equal(
        trajectory(start(method, problem, 4), 3)[-1], gd(gradients(problem, 4), problem.x0(), EIGHTH, 3)[-1]
    )


@pytest.mark.parametrize(
    "Q",
    [RandK(4, values="f8"), PermK(values="f8"), Bernoulli(0.5, values="f8"), Lazy(0.5, values="f8")],
    ids=repr,
)
def test_diana_keeps_h_the_mean_of_h_i(Q):
    """Exact, in every round.  docs/methods.md, DIANA; all factors are powers of
    two, PermK's alpha 1/n too."""
    problem = integers(4, 8)
    loop = start(DIANA(Q, gamma=EIGHTH), problem, 4)
    for k in range(7):
        loop.step(k)
        assert np.array_equal(loop.replica.h, np.mean([w.h for w in loop.workers.values()], axis=0))
        assert loop.replica.h.any()


@pytest.mark.parametrize("Q", UNBIASED, ids=repr)
def test_diana_keeps_h_the_mean_of_h_i_for_every_compressor(Q):
    """To rounding: the memories take the decoded message on both sides, in whatever format it travelled."""
    loop = start(DIANA(Q), Entropy(), 4)
    for k in range(50):
        loop.step(k)
        mean = np.mean([w.h for w in loop.workers.values()], axis=0)
        assert np.abs(loop.replica.h - mean).max() <= 1e-14 * max(
            np.abs(w.h).max() for w in loop.workers.values()
        )


def test_diana_without_compression_ignores_the_shifts():
    """Exact.  docs/methods.md, DIANA: identity => g = grad f(x) whatever h_i is;
    here h_i are random integers."""
    problem = integers(4, 8)
    loop = start(DIANA(Identity("f8"), gamma=EIGHTH, alpha=0.25), problem, 4)
    shifts = rng(3).integers(-50, 50, (4, 8)).astype(float)
    for i, w in loop.workers.items():
        w.h[:] = shifts[i]
    loop.replica.h[:] = shifts.mean(axis=0)
    wanted = gd(gradients(problem, 4), problem.x0(), EIGHTH, EXACT)
    assert_equal(trajectory(loop, EXACT), wanted)


@pytest.mark.parametrize("Q", unbiased("f4"), ids=repr)
def test_diana_stays_at_the_optimum(Q):
    """Exact, for ever, any compressor.  docs/methods.md, DIANA: x = x*, h_i = grad
    f_i(x*): messages are C(0) = 0."""
    problem = integers(4, 8)
    problem = replace(problem, b=problem.A @ problem.start + (problem.b - problem.b.mean(axis=0)))
    loop = start(DIANA(Q), problem, 4)
    for i, w in loop.workers.items():
        w.h[:] = problem.objective(i, 4).grad(problem.start)
        assert w.h.any()
    for x in trajectory(loop, 30):
        assert np.array_equal(x, problem.start)


@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural(), Quantized(RandK(4), Natural())], ids=repr)
def test_diana_learns_the_gradients_at_the_optimum(Q):
    """docs/methods.md, DIANA: h_i -> grad f_i(x*), which are not 0, and x -> x*,
    although payloads are in f4."""
    problem = squares(3, 6, seed=4)
    loop = start(DIANA(Q, gamma="theory*2"), problem, 3)
    x = trajectory(loop, 1200)[-1]
    assert np.abs(x - problem.x_star).max() < 1e-10
    for i, w in loop.workers.items():
        limit = problem.objective(i, 3).grad(problem.x_star)
        assert np.abs(w.h - limit).max() < 1e-10 < np.abs(limit).max()


@pytest.mark.parametrize("C", [TopK(3, values="f8"), Identity("f8"), Shrunk(RandK(4, values="f8"))], ids=repr)
def test_ef21_keeps_g_the_mean_of_g_i(C):
    """Exact, in every round.  docs/methods.md, EF21."""
    problem = integers(4, 8)
    loop = start(EF21(C, gamma=EIGHTH), problem, 4)
    for k in range(7):
        loop.step(k)
        assert np.array_equal(loop.replica.g, np.mean([w.g for w in loop.workers.values()], axis=0))


@pytest.mark.parametrize("C", CONTRACTIVE, ids=repr)
def test_ef21_keeps_g_the_mean_of_g_i_for_every_compressor(C):
    """To rounding, in every format."""
    loop = start(EF21(C), Entropy(), 4)
    for k in range(50):
        loop.step(k)
        mean = np.mean([w.g for w in loop.workers.values()], axis=0)
        assert np.abs(loop.replica.g - mean).max() <= 1e-14 * max(
            np.abs(w.g).max() for w in loop.workers.values()
        )


@pytest.mark.parametrize(
    "C", [TopK(3, values="f8"), TopK(1, values="f8"), HardThreshold(0.5, values="f8")], ids=repr
)
def test_ef14_virtual_iterate(C):
    """Exact.  docs/methods.md, EF14: x_t - mean e_t = x_0 - gamma sum_{s<t} mean s_i."""
    problem = integers(4, 8)
    loop = start(EF14(C, gamma=EIGHTH), problem, 4)
    virtual = problem.x0()
    for k in range(7):
        virtual -= EIGHTH * mean_gradient(problem, 4, loop.replica.x)
        loop.step(k)
        errors = [w.e for w in loop.workers.values()]
        assert np.array_equal(loop.replica.x - np.mean(errors, axis=0), virtual)
        assert np.any(errors)


@pytest.mark.parametrize("C", [*CONTRACTIVE, *ABSOLUTE], ids=repr)
def test_ef14_virtual_iterate_for_every_compressor(C):
    """The same to rounding, for 60 rounds of any C in any format.  The bound: a few ulp of x a round."""
    problem = Entropy()
    gamma = 0.5 / problem.constants(4).L_max
    loop = start(EF14(C, gamma=gamma), problem, 4)
    virtual = problem.x0()
    scale = np.abs(virtual).max()
    for k in range(ROUNDS):
        virtual -= gamma * mean_gradient(problem, 4, loop.replica.x)
        loop.step(k)
        errors = np.array([w.e for w in loop.workers.values()])
        scale = max(scale, np.abs(loop.replica.x).max(), np.abs(errors).max())
        assert np.abs(loop.replica.x - errors.mean(axis=0) - virtual).max() <= 1e-15 * (k + 10) * scale


@pytest.mark.parametrize("lam", [0.0, 0.01, 0.3])
def test_ef14_errors_stay_below_the_hard_threshold(lam):
    """Exact.  docs/methods.md, EFSGD: |e_j| < lambda for all j, t, payloads being
    f8; lambda = 0 gives e = 0."""
    loop = start(EF14(HardThreshold(lam, values="f8"), gamma=0.1), Entropy(), 4)
    for k in range(40):
        loop.step(k)
        assert all((np.abs(w.e) < lam).all() or not w.e.any() for w in loop.workers.values())


def test_gd_on_a_quadratic_is_a_matrix_power():
    """Exact.  docs/methods.md, GD: error_t = (I - gamma A)^t error_0."""
    problem = integers(4, 6)
    x_star = rng(6).integers(-3, 4, 6).astype(float)
    problem = replace(problem, b=problem.A @ x_star)
    step = np.eye(6) - EIGHTH * problem.A.mean(axis=0)
    error = problem.x0() - x_star
    for x in trajectory(start(GD(gamma=EIGHTH, values="f8"), problem, 4), EXACT):
        assert np.array_equal(x - x_star, error)
        error = step @ error


# --- what methods do ---


@pytest.mark.parametrize(("problem", "n"), PLACES[:2], ids=["d12-n4", "d13-n5"])
@pytest.mark.parametrize("factor", [0.3, 1.0])
def test_gd_decreases_f_by_the_descent_lemma(problem, n, factor):
    """docs/methods.md, GD: gamma <= 1/L gives f(x+) <= f(x) - gamma (1 - gamma L/2)
    |grad f(x)|^2 in every round."""
    loop = start(GD(gamma=f"theory*{factor}", values="f8"), problem, n)
    gamma, L = loop.method.gamma, problem.constants(n).L
    assert gamma == pytest.approx(factor / L)
    iterates = trajectory(loop, 100)
    for x, following in pairwise(iterates):
        bound = objective_value(problem, n, x) - gamma * (1 - gamma * L / 2) * grad_norm_sq(problem, n, x)
        assert objective_value(problem, n, following) <= bound + 1e-14


def test_dcgd_plateaus_unless_the_local_gradients_vanish():
    """docs/methods.md, DCGD, RandK, theory step: grad f_i(x*) != 0 leaves a
    neighbourhood, = 0 none; DIANA never."""
    hard, easy = squares(3, 6, seed=4), squares(3, 6, seed=4, common_optimum=True)

    def plateau(method, problem):
        iterates = trajectory(start(method, problem, 3), 1000)
        first = grad_norm_sq(problem, 3, iterates[0])
        return np.mean([grad_norm_sq(problem, 3, x) for x in iterates[-200:]]) / first

    assert plateau(DCGD(RandK(2)), hard) > 1e-4
    assert plateau(DCGD(RandK(2)), easy) < 1e-20
    assert plateau(DIANA(RandK(2)), hard) < 1e-20


def counterexample() -> Squares:
    """Beznosikov et al. (2020): <a_i, x>^2 + |x|^2/4, a = (-3,2,2), (2,-3,2), (2,2,-3), from x0 = (1,1,1)."""
    a = np.array([[-3.0, 2, 2], [2, -3, 2], [2, 2, -3]])
    A = 2 * a[:, :, None] * a[:, None, :] + np.eye(3) / 2
    return Squares(A, np.zeros((3, 3)), np.ones(3))


def test_ef21_converges_where_gradient_descent_with_top1_diverges():
    """docs/methods.md, EF21.  There grad f_i(x0) has its largest entry, -11/2, at i, so Top1 sends an ascent
    direction: x^k = (1 + 11 gamma/6)^k x^0.  EF21 with the same Top1 and its theory step goes to x* = 0."""
    problem = counterexample()
    loop = start(EF21(TopK(1)), problem, 3)
    gamma = loop.method.gamma
    diverging = dcgd(gradients(problem, 3), problem.x0(), gamma, codec(TopK(1, values="f8"), 0, 3), 200)
    for k, x in enumerate(diverging):
        assert np.allclose(x, (1 + 11 * gamma / 6) ** k, rtol=1e-10)
    assert np.abs(trajectory(loop, 3000)[-1]).max() < 1e-8


def test_ef14_plateaus_where_ef21_converges():
    """docs/methods.md, EF14 and EF21: the same heterogeneous problem, TopK and step size."""
    problem = squares(4, 8, seed=9)
    gamma = start(EF21(TopK(2)), problem, 4).method.gamma

    def final(method):
        iterates = trajectory(start(method, problem, 4), 1500)[-200:]
        return np.mean([grad_norm_sq(problem, 4, x) for x in iterates])

    assert final(EF14(TopK(2), gamma=gamma)) > 1e-6
    assert final(EF21(TopK(2), gamma=gamma)) < 1e-20


# --- theorems, with gamma='theory' ---


def test_gd_contracts_linearly():
    """docs/methods.md, GD: |x_k - x*|^2 <= (1 - mu/L)^k |x_0 - x*|^2, in every round."""
    problem = squares(4, 8, seed=21)
    c, x_star = problem.constants(4), problem.x_star
    errors = [np.sum((x - x_star) ** 2) for x in trajectory(start(GD(values="f8"), problem, 4), 40)]
    assert all(e <= (1 - c.mu / c.L) ** k * errors[0] * (1 + 1e-10) for k, e in enumerate(errors))


def test_agd_contracts_with_the_root_of_the_condition_number():
    """docs/methods.md, AGD: f_k - f* <= (1 - sqrt(mu/L))^k (f_0 - f* + mu/2 |x_0 -
    x*|^2), which GD misses here."""
    problem = Quadratics(d=40, noise=0.2, lam=1e-3)
    c = problem.constants(3)
    x_star = agd(gradients(problem, 3), problem.x0(), c.L, c.mu, 4000)[-1]
    bound = (
        objective_value(problem, 3, problem.x0()) - c.f_star + c.mu / 2 * np.sum((problem.x0() - x_star) ** 2)
    )

    def gaps(method):
        return [objective_value(problem, 3, x) - c.f_star for x in trajectory(start(method, problem, 3), 400)]

    rate = 1 - sqrt(c.mu / c.L)
    assert all(gap <= rate**k * bound + 1e-12 for k, gap in enumerate(gaps(AGD(values="f8"))))
    assert not all(gap <= rate**k * bound + 1e-12 for k, gap in enumerate(gaps(GD(values="f8"))))


def test_agd_without_strong_convexity():
    """docs/methods.md, AGD, mu = 0: f_k - f* <= 2 L |x_0 - x*|^2 / (k + 1)^2."""
    problem = Quadratics(d=40, noise=0.2, lam=1e-3)
    c = problem.constants(3)
    x_star = agd(gradients(problem, 3), problem.x0(), c.L, c.mu, 4000)[-1]
    distance = np.sum((problem.x0() - x_star) ** 2)
    iterates = trajectory(start(AGD(mu=0, values="f8"), problem, 3), 200)
    for k, x in enumerate(iterates[1:], 1):
        assert objective_value(problem, 3, x) - c.f_star <= 2 * c.L * distance / (k + 1) ** 2 + 1e-12


@pytest.mark.parametrize("Q", [RandK(2), RandK(2, mask="shared"), Natural(), Ternary(), PermK()], ids=repr)
def test_diana_contracts_linearly(Q):
    """docs/methods.md, DIANA.  With V = |x - x*|^2 + M gamma^2 mean |h_i - grad
    f_i(x*)|^2, M = 4A/alpha, A for omega/n: E V_k <= max{1 - gamma mu, 1 - alpha/2}^k
    V_0 (Gorbunov, Hanzely, Richtarik, 2020, Theorem 4.1, DIANA).  The mean over 10
    seeds, at every tenth round; runs lie well below the bound, so no slack is given."""
    problem, n, d = squares(4, 8, seed=21), 4, 8
    mu, x_star = problem.constants(n).mu, problem.x_star
    limits = [g(x_star) for g in gradients(problem, n)]
    A, _ = Q.ab(d, n)
    values = []
    for seed in range(10):
        loop = start(DIANA(Q), problem, n, seed)
        gamma, alpha = loop.method.gamma, loop.method.alpha
        history = []
        for k in range(91):
            if k % 10 == 0:
                spread = np.mean([np.sum((w.h - limits[i]) ** 2) for i, w in loop.workers.items()])
                history.append(np.sum((loop.replica.x - x_star) ** 2) + 4 * A / alpha * gamma**2 * spread)
            loop.step(k)
        values.append(history)
    rate = max(1 - gamma * mu, 1 - alpha / 2)
    mean = np.mean(values, axis=0)
    assert mean[-1] < mean[0] / 10
    assert all(v <= rate ** (10 * j) * mean[0] for j, v in enumerate(mean))


@pytest.mark.parametrize(
    "Q", [RandK(4), RandK(4, mask="shared"), PermK(), Natural(), Quantized(PermK(), Natural())], ids=repr
)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_marina_reaches_the_rate_of_its_theorem(Q, noise):
    """docs/methods.md, MARINA: (1/T) sum_{t<T} E |grad f(x_t)|^2 <= 2 Delta_0 / (gamma T).  The mean over 4
    seeds, no slack: the left side is half to three quarters of the right one, and means spread by 6 %."""
    problem, n, T = Quadratics(d=20, noise=noise, lam=1e-3), 5, 100
    gap = objective_value(problem, n, problem.x0()) - problem.constants(n).f_star
    means = []
    for seed in range(4):
        loop = start(MARINA(Q), problem, n, seed)
        means.append(np.mean([grad_norm_sq(problem, n, x) for x in trajectory(loop, T - 1)]))
    assert np.mean(means) <= 2 * gap / (loop.method.gamma * T)


@pytest.mark.parametrize("C", [TopK(4), TopK(1), Sign(), Identity()], ids=repr)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_ef21_reaches_the_rate_of_its_theorem(C, noise):
    """docs/methods.md, EF21: (1/T) sum_{t<T} |grad f(x_t)|^2 <= 2 Delta_0 / (gamma T) + D_0^2 / (theta T),
    for certain, C being deterministic; D_0 = mean |g_i^0 - grad f_i(x^0)|."""
    problem, n, T = Quadratics(d=20, noise=noise, lam=1e-3), 5, 150
    x0 = problem.x0()
    gap = objective_value(problem, n, x0) - problem.constants(n).f_star
    local = [g(x0) for g in gradients(problem, n)]
    D0 = np.mean([sqrt(np.sum((codec(C, 0, n)(i, 0, g) - g) ** 2)) for i, g in enumerate(local)])
    theta = 1 - sqrt(1 - C.alpha(20, n))
    loop = start(EF21(C), problem, n)
    mean = np.mean([grad_norm_sq(problem, n, x) for x in trajectory(loop, T - 1)])
    assert mean <= 2 * gap / (loop.method.gamma * T) + D0**2 / (theta * T)
