"""GD, AGD, DCGD, DIANA, MARINA, EF14 and EF21 against their identities, most of them bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

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
    TopK,
)
from mpicomp.methods import AGD, DCGD, DIANA, EF14, EF21, GD, MARINA
from tests.reference.gd import gd
from tests.support.trajectories import (
    ABSOLUTE,
    CONTRACTIVE,
    EIGHTH,
    EXACT,
    ROUNDS,
    UNBIASED,
    Entropy,
    assert_close,
    assert_equal,
    gradients,
    integers,
    mean_gradient,
    rng,
    squares,
    start,
    trajectory,
    unbiased,
)


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
