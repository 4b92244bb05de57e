"""Methods on batches that reduce variance: what holds of several, and what they all refuse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import HardThreshold, Identity, Natural, PermK, RandK, Shrunk, Sign, TopK
from mpicomp.methods import DASHAMVR, DASHAPAGE, DCGD, DIANA, PPMARINA, VRDIANA, VRMARINA, ByzVRMARINA
from mpicomp.problems import Logistic, Noisy, NonconvexGLM, NonconvexLogistic, Quadratics
from tests.reference.vrmarina import page
from tests.support.finite_sums import (
    SAMPLED,
    SquareSums,
    batches,
    coins,
    every_place,
    integer_sums,
    sums,
    workers,
)
from tests.support.trajectories import (
    EIGHTH,
    ROUNDS,
    WHOLE,
    assert_close,
    grad_norm_sq,
    mean_gradient,
    resolved,
    start,
    trajectory,
)

# --- special cases and invariants ---

every_batch = pytest.mark.parametrize("b", [1, 2, 0.5])


@every_place
@every_batch
def test_vrmarina_and_dashapage_without_compression_are_page(problem, b):
    """docs/methods.md, VRMARINA: identity and any batch => PAGE, on what all
    workers draw; so is DASHA-PAGE."""
    n = workers(problem)
    local = batches(problem, 47, b)
    for method, tag in [
        (VRMARINA(WHOLE, b, gamma=0.1, p=0.2, sync=WHOLE), "marina/coin"),
        (DASHAPAGE(WHOLE, b, gamma=0.1, p=0.2, start="compressed"), "dasha/coin"),
    ]:
        wanted = page(
            lambda x: mean_gradient(problem, n, x),
            lambda k, x: np.mean([local(i, k, x) for i in range(n)], axis=0),
            problem.x0(),
            0.1,
            coins(tag, 47, n, 0.2),
            ROUNDS,
        )
        assert_close(trajectory(start(method, problem, n, seed=47), ROUNDS), wanted, 1e-12)


@pytest.mark.parametrize("Q", [RandK(4, values="f8"), PermK(values="f8")], ids=repr)
def test_shifts_and_estimates_keep_their_means(Q):
    """Exact, in every round.  docs/methods.md, VRDIANA (h = mean h_i) and DASHA (g = mean g_i)."""
    problem, n = integer_sums(4, 4, 8), 4
    for method, name in [
        (VRDIANA(Q, 2, gamma=EIGHTH, p=0.5), "h"),
        (DASHAPAGE(Q, 2, gamma=EIGHTH, p=0.5, a=0.5), "g"),
        (DASHAMVR(Q, 2, b=0.5, gamma=EIGHTH, a=0.5), "g"),
    ]:
        loop = start(method, problem, n)
        for k in range(6):
            loop.step(k)
            mean = np.mean([getattr(w, name) for w in loop.workers.values()], axis=0)
            assert mean.any() and np.array_equal(getattr(loop.replica, name), mean)


@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural()], ids=repr)
def test_the_optimum_is_a_fixed_point(Q):
    """Exact, for ever: with the shifts of x* all messages are C(0) = 0, whatever the batches."""
    problem, n = integer_sums(4, 4, 8), 4
    shift = problem.A.mean(axis=(0, 1)) @ problem.start - problem.b.mean(axis=(0, 1))
    problem = replace(problem, b=problem.b + shift)
    assert not mean_gradient(problem, n, problem.start).any()
    for method in (VRDIANA(Q, 1, p=0.3), DASHAPAGE(Q, 1, p=0.3)):
        loop = start(method, problem, n)
        for i, w in loop.workers.items():
            w.h[:] = problem.objective(i, n).grad(problem.start)
            assert w.h.any()
            if isinstance(method, DASHAPAGE):
                w.g[:] = w.h
        for x in trajectory(loop, 30):
            assert np.array_equal(x, problem.start)


# --- step sizes ---


@pytest.mark.parametrize(
    ("method", "p"),
    [
        (VRMARINA(RandK(3), 5), 5 / 25),
        (VRMARINA(RandK(2), 5), 1 / 6),  # zeta/d
        (VRMARINA(RandK(2), 0.25, sync=Identity("f8")), 1 / 12),
        (VRMARINA(Identity(), 1), 1 / 21),
        (VRMARINA(Identity(), None), 1 / 2),
        (VRMARINA(RandK(6), 5, sync_batch=45), 5 / 50),
        (VRMARINA(RandK(6), 5, sync_batch=0.5), 5 / 15),
        (VRMARINA(RandK(6), 0.5, sync_batch=10), 1 / 2),
        (VRMARINA(RandK(3), 5, p="theory*0.5"), 5 / 50),
        (ByzVRMARINA(RandK(3), 5), 5 / 25),
        (ByzVRMARINA(RandK(2), None), 1 / 6),
        (PPMARINA(RandK(3), 2), 1 / 8),  # (r/n) zeta/d
        (PPMARINA(RandK(3), 0.25), 1 / 16),
        (PPMARINA(Identity(), 1), 1 / 4),
        (PPMARINA(Identity("f8"), 4), 1.0),
        (VRDIANA(RandK(3), 5), 5 / 20),
        (VRDIANA(RandK(3), 0.1), 2 / 20),
        (VRDIANA(RandK(3), 0.01), 1 / 20),  # a sample at least
        (VRDIANA(RandK(3), None), 1.0),
        (DASHAPAGE(RandK(3), 5), 5 / 25),
        (DASHAPAGE(RandK(3), None), 1 / 2),
        (DASHAPAGE(RandK(3), 5, p=0.7), 0.7),
    ],
    ids=repr,
)
def test_probabilities(method, p):
    """docs/methods.md, VRMARINA, ByzVRMARINA, PPMARINA, VRDIANA and DASHAPAGE: d = 12, n = 4, m = 20."""
    assert resolved(method, 12, 4, SAMPLED).p == pytest.approx(p)


def test_a_step_uses_the_probability_that_is_chosen():
    """p=theory*0.5 is known to gamma."""
    for method in (VRMARINA(RandK(3), 5), ByzVRMARINA(RandK(3), 5), DASHAPAGE(RandK(3), 5)):
        half = resolved(replace(method, p="theory*0.5"), 12, 4, SAMPLED)
        assert half.gamma == resolved(replace(method, p=half.p), 12, 4, SAMPLED).gamma
        assert half.gamma < resolved(method, 12, 4, SAMPLED).gamma
        with pytest.raises(ConfigError, match=r"p=1\.6"):
            resolved(replace(method, p="theory*8"), 12, 4, SAMPLED)


@pytest.mark.parametrize(
    ("method", "missing", "what"),
    [
        (VRMARINA(RandK(3), 5), "samples", "p"),
        (VRMARINA(RandK(3), 5), "L_sample", "gamma"),
        (VRMARINA(RandK(3), 5, p=0.1), "L_sample", "gamma"),
        (VRMARINA(RandK(3), 5, gamma=0.1), "samples", "p"),
        (ByzVRMARINA(RandK(3), 5), "samples", "p"),
        (ByzVRMARINA(RandK(3), 5, p=0.1), "L_sample", "gamma"),
        (VRDIANA(RandK(3), 5), "samples", "p"),
        (VRDIANA(RandK(3), 5), "L_ij", "gamma"),
        (DASHAPAGE(RandK(3), 5), "samples", "p"),
        (DASHAPAGE(RandK(3), 5), "L_sample", "gamma"),
        (DASHAMVR(RandK(3), 5, b=0.5), "L_sample", "gamma"),
    ],
    ids=repr,
)
def test_a_constant_that_is_missing_is_named(method, missing, what):
    """With what it is for; and it is not missed where that is a number, nor online."""
    name = type(method).__name__
    constants = replace(SAMPLED, **{missing: None})
    with pytest.raises(
        ConfigError, match=rf"{name} needs the constant {missing} for {what}=theory.*Give {what} as"
    ):
        resolved(method, 12, 4, constants)
    resolved(replace(method, **{what: 0.1}), 12, 4, constants)
    if missing == "samples" and name == "VRMARINA":
        resolved(replace(method, sync_batch=40), 12, 4, constants)


@pytest.mark.parametrize("L_sigma", [None, 1.5])
def test_steps_count_the_variance_of_the_samples_and_not_their_mean_square(L_sigma):
    """The noise of ``Noisy`` cancels from a difference: L_σ is 0, where L_sample is L_+."""
    c = Noisy(Quadratics(d=12, noise=0.5, lam=0.1), 2.0).constants(4)
    assert c.L_sigma == 0 < c.L_sample
    c = c if L_sigma is None else replace(c, L_sigma=L_sigma)
    Q, omega, A, n, p, noise = RandK(3), 3, 3 / 4, 4, 0.2, c.L_sigma**2 / 5
    spread = (1 - p) / p * (A * c.L_plus**2 + (A + 1 / n) * noise)
    assert resolved(VRMARINA(Q, 5, p=p), 12, n, c).gamma == pytest.approx(1 / (c.L + sqrt(spread)))
    for method, share, rate in [
        (DASHAPAGE(Q, 5, p=p), 48, 1 - p),
        (DASHAMVR(Q, 5, b=p), 96, (1 - p) ** 2),
    ]:
        spread = share * A * (2 * omega + 1) * (c.L_tilde**2 + rate * noise)
        spread += share / 24 * rate * noise / (p * n)
        assert resolved(method, 12, n, c).gamma == pytest.approx(1 / (c.L + sqrt(spread)))


# --- what is refused ---


@pytest.mark.parametrize("wrong", [TopK(2), Sign(), Shrunk(RandK(2)), HardThreshold(0.1), 3], ids=repr)
@pytest.mark.parametrize("method", [VRMARINA, ByzVRMARINA, PPMARINA, VRDIANA, DASHAPAGE, DASHAMVR])
def test_a_compressor_that_the_theorem_does_not_cover_is_refused(method, wrong):
    """And one that it does is named."""
    more = {"r": 2} if method is PPMARINA else {"batch": 2} | ({"b": 0.5} if method is DASHAMVR else {})
    with pytest.raises(ConfigError, match=rf"{method.__name__} needs Q to be unbiased.*RandK\(k=0\.01\)"):
        method(wrong, **more)
    method(RandK(k=0.01), **more)


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        (VRMARINA(RandK(2), 5), "p", 1.5),
        (VRMARINA(RandK(2), 5), "p", 0),
        (VRMARINA(RandK(2), 5), "p", None),
        (VRMARINA(RandK(2), 5), "p", "theory*x"),
        (VRMARINA(RandK(2), 5), "batch", 0),
        (VRMARINA(RandK(2), 5), "batch", 1.5),
        (VRMARINA(RandK(2), 5), "sync_batch", -1),
        (ByzVRMARINA(RandK(2), 5), "p", 1.5),
        (PPMARINA(RandK(2), 5), "r", 0),
        (PPMARINA(RandK(2), 5), "p", 2.0),
        (VRDIANA(RandK(2), 5), "p", 1.5),
        (VRDIANA(RandK(2), 5), "alpha", 0.0),
        (DASHAPAGE(RandK(2), 5), "p", -0.1),
        (DASHAPAGE(RandK(2), 5), "a", 2.0),
        (DASHAMVR(RandK(2), 5, b=0.5), "b", 0.0),
        (DASHAMVR(RandK(2), 5, b=0.5), "b", None),
        (DCGD(RandK(2)), "batch", 0),
        (DIANA(RandK(2)), "batch", 2.0),
    ],
    ids=repr,
)
def test_parameters_out_of_range_are_refused(method, name, value):
    with pytest.raises(ConfigError, match=name):
        replace(method, **{name: value})


# --- on the way to the optimum ---


@dataclass(frozen=True, eq=False)
class NotKnownConvex(SquareSums):
    """The same with mu unknown, for step sizes that do not assume convexity."""

    def constants(self, n):
        return replace(super().constants(n), mu=None)


def test_methods_on_batches_that_reduce_variance_reach_the_optimum_and_others_do_not():
    """docs/methods.md, DCGD, DIANA, VRDIANA, VRMARINA, DASHAPAGE, by theory;
    VR-DIANA by the step for non-convex f as well."""
    problem, n = sums(4, 6, 8, seed=3), 4
    careful = NotKnownConvex(problem.A, problem.b, problem.start)
    Q, first = RandK(4, values="f8"), grad_norm_sq(problem, n, problem.x0())

    def final(method, problem, rounds=1000):
        iterates = trajectory(start(method, problem, n), rounds)
        return np.mean([grad_norm_sq(problem, n, x) for x in iterates[-100:]]) / first

    for method in (DCGD(Q, batch=2), DIANA(Q, batch=2), DASHAMVR(Q, 2, b=0.5, gamma=0.02)):
        assert final(method, problem, 300) > 1e-4
    for method in (VRDIANA(Q, 2), VRMARINA(Q, 2), DASHAPAGE(Q, 2)):
        assert final(method, problem) < 1e-10
    assert final(VRDIANA(Q, 2), careful) < 1e-10


# --- the constant of every sample ---


def path_lengths(points):
    """The distance from each point to the next."""
    return np.sqrt(np.sum(np.diff(points, axis=0) ** 2, axis=1))


@pytest.mark.parametrize("make", [Logistic, NonconvexLogistic, NonconvexGLM])
def test_l_ij_bounds_every_sample(make):
    """L_ij is the longest row's constant, nearly attained along that row where |phi''| is greatest."""
    problem = make("breast_cancer", lam=0.02)
    found, data = problem.constants(3), problem.objective(0, 1)
    rows = data.X.toarray()
    j = int(np.argmax(np.sum(rows**2, axis=1)))
    top = problem.phi.curvature * np.sum(rows[j] ** 2) + 0.02 * problem.rho.curvature
    assert found.L_ij == pytest.approx(top, rel=1e-12)
    assert found.L_ij >= max(found.L_sample, found.L_max)
    single, direction = data.part(np.array([j])), rows[j] / np.sqrt(np.sum(rows[j] ** 2))
    points = direction * np.linspace(-1, 1, 1001)[:, None]
    slopes = np.array([single.grad(x) for x in points])
    steps = path_lengths(slopes) / path_lengths(points)
    assert 0.9 * found.L_ij < steps.max() <= found.L_ij * (1 + 1e-9)
