"""EF21LMO: EF21 and EF21-SGDM with steps of a given length; round k makes h^k, as in test_ef21.py."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.base.parts import Part, Parts
from mpicomp.compressors import RandK, Shrunk, TopK
from mpicomp.methods import EF21, EF21LMO
from mpicomp.methods.support.lmo import NORMS, squared_ratio, steepest
from mpicomp.methods.support.lmo_method import lag
from mpicomp.problems import MLP, Noisy, Quadratics
from tests.reference.ef21lmo import ef21lmo, lmo
from tests.support.error_feedback import SHRINK, everywhere, sampler
from tests.support.layers import (
    AVERAGES,
    LAYERED,
    PARTS,
    SHAPES,
    Layered,
    dual,
    every_eta,
    every_norm,
    size,
    steps_of,
)
from tests.support.trajectories import (
    EIGHTH,
    ROUNDS,
    WHOLE,
    Entropy,
    Squares,
    assert_close,
    assert_equal,
    beginning,
    codec,
    integers,
    mean_gradient,
    objective_value,
    resolved,
    rounding,
    squares,
    start,
    trajectory,
)

# --- the transcription ---


def check(problem, n, batch, C, norm, eta, gamma=0.05, begin="gradient", momentum="heavy-ball"):
    method = EF21LMO(C, gamma=gamma, norm=norm, eta=eta, momentum=momentum, batch=batch, start=begin)
    wanted = ef21lmo(
        n,
        sampler(problem, n, batch, 31),
        problem.x0(),
        norm,
        SHAPES,
        *steps_of(eta, gamma, momentum),
        codec(C, 31, n),
        ROUNDS,
        beginning(begin, C, 31, n),
        AVERAGES[momentum],
    )
    assert_close(trajectory(start(method, problem, n, seed=31), ROUNDS), wanted, 10 * rounding(C))


@everywhere
@pytest.mark.parametrize("C", [SHRINK[0], SHRINK[3], TopK(3)], ids=repr)
@every_eta
def test_ef21lmo_is_its_transcription(problem, n, batch, C, eta):
    """docs/methods.md, EF21LMO."""
    check(problem, n, batch, C, "l2", eta)


@every_norm
@pytest.mark.parametrize("begin", ["gradient", "compressed"])
@pytest.mark.parametrize("C", [SHRINK[0], SHRINK[3], WHOLE], ids=repr)
@every_eta
def test_it_is_so_in_every_norm(norm, begin, C, eta):
    check(LAYERED, 4, None, C, norm, eta, begin=begin)


# --- the steps ---


@every_norm
def test_a_step_has_length_1_and_the_least_product(norm):
    """<g, D(g)> = ‖g‖_*, and -D(g) is the transcription's LMO."""
    draw = np.random.default_rng(3)
    for scale in (1e-200, 1.0, 1e200):
        g = draw.normal(size=PARTS.size) * scale
        D = steepest(norm, g, PARTS)
        assert size(norm, D) == pytest.approx(1, rel=1e-12)
        assert (g / scale) @ D == pytest.approx(dual(norm, g / scale), rel=1e-12)
        assert np.abs(D + lmo(norm, g / scale, SHAPES)).max() < 1e-12
        single = steepest(norm, (g / scale).astype(np.float32), PARTS)
        assert single.dtype == np.float64 and np.abs(single - D).max() < 1e-5


@every_norm
def test_the_ratio_of_the_norms_is_attained(norm):
    """By y = D(y); and no y exceeds it."""
    draw = np.random.default_rng(4)
    rho = sqrt(squared_ratio(norm, PARTS.size, PARTS))
    for g in draw.normal(size=(20, PARTS.size)) ** 3:
        assert dual(norm, g) <= rho * np.linalg.norm(g) * (1 + 1e-12)
        assert np.linalg.norm(g) <= rho * size(norm, g) * (1 + 1e-12)
    y = steepest(norm, g, PARTS)
    assert dual(norm, y) == pytest.approx(rho * np.linalg.norm(y), rel=1e-12)


def test_a_matrix_of_low_rank_has_a_step_of_that_rank():
    """Nothing is made of rounding errors; of 0 nothing at all, exactly."""
    draw = np.random.default_rng(5)
    A = draw.normal(size=(7, 2)) @ draw.normal(size=(2, 3))
    D = steepest("spectral", A.ravel(), Parts((Part("a", (7, 3)),))).reshape(7, 3)
    assert np.linalg.svd(D)[1] == pytest.approx([1, 1, 0], abs=1e-12)
    for norm in NORMS:
        assert not steepest(norm, np.zeros(PARTS.size), PARTS).any()


@every_norm
def test_what_is_not_finite_is_a_divergence_or_stays_so(norm):
    """So that the next gradient, or this error, ends the run on all ranks."""
    for bad in (np.nan, np.inf):
        g = np.ones(PARTS.size)
        g[5] = bad  # in a matrix
        if norm == "linf":
            assert np.isnan(steepest(norm, g, PARTS)).any() == np.isnan(bad)
            continue
        with pytest.raises(DivergedError):
            steepest(norm, g, PARTS)


# --- special cases ---


def test_without_compression_one_worker_takes_normalised_steps():
    """x - γ ∇f/|∇f|; the first step exactly, as |(3, 4)| = 5."""
    problem = Squares(np.eye(2)[None], np.zeros((1, 2)), np.array([3.0, 4.0]))
    loop = start(EF21LMO(WHOLE, gamma=2.5), problem, 1)
    loop.step(0)
    assert loop.x.tolist() == [1.5, 2.0]
    problem = squares(1, 6, seed=4)
    x, wanted = problem.x0(), [problem.x0()]
    for _ in range(ROUNDS):
        g = mean_gradient(problem, 1, x)
        x = x - 0.01 * g / np.linalg.norm(g)
        wanted.append(x)
    got = trajectory(start(EF21LMO(WHOLE, gamma=0.01, start="compressed"), problem, 1), ROUNDS)
    assert_close(got, wanted, 1e-12)


def test_without_compression_it_is_sign_descent():
    """Exact: x - γ sign ∇f, on any number of workers."""
    problem = integers(4, 8)
    x, wanted = problem.x0(), [problem.x0()]
    for _ in range(ROUNDS):
        x = x - EIGHTH * np.sign(mean_gradient(problem, 4, x))
        wanted.append(x)
    assert_equal(trajectory(start(EF21LMO(WHOLE, gamma=EIGHTH, norm="linf"), problem, 4), ROUNDS), wanted)


def test_without_compression_matrices_take_steps_along_polar_factors():
    """Each step of a matrix is γ times a matrix with orthonormal rows or columns, as Muon's."""
    xs = trajectory(start(EF21LMO(WHOLE, gamma=0.05, norm="spectral"), LAYERED, 1), 10)
    for x, after in pairwise(xs):
        g, s = mean_gradient(LAYERED, 1, x), (x - after) / 0.05
        for part, where in PARTS:
            G, S = (a[where].reshape(part.shape[0] if part.shape else 1, -1) for a in (g, s))
            if len(part.shape) < 2:
                assert np.abs(S - np.sign(G)).max() < 1e-12
                continue
            assert np.linalg.svd(S)[1] == pytest.approx(1, rel=1e-12)
            assert np.sum(G * S) == pytest.approx(np.linalg.norm(G, "nuc"), rel=1e-12)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@every_eta
def test_the_scale_of_f_does_not_matter(norm, eta):
    """Exact: 4 f has the iterates of f, with the same γ."""
    problem = squares(3, 6, seed=4)
    scaled = replace(problem, A=4 * problem.A, b=4 * problem.b)
    method = EF21LMO(TopK(2, values="f8"), gamma=0.05, norm=norm, eta=eta)
    first, second = (trajectory(start(method, p, 3), ROUNDS) for p in (problem, scaled))
    assert_equal(second, first)


def test_the_estimate_is_that_of_ef21():
    """Exact: h is EF21's g at the same points; x moves so little that the gradients stay integers."""
    problem = integers(4, 8)
    ours = start(EF21LMO(TopK(2), gamma=1e-300), problem, 4)
    ef21 = start(EF21(TopK(2), gamma=1e-300, start="gradient"), problem, 4)
    for k in range(6):
        ours.step(k)
        ef21.step(k)
        assert ours.replica.h.any() and np.array_equal(ours.replica.h, ef21.replica.g)
        assert np.array_equal(ours.replica.h, np.mean([w.h for w in ours.workers.values()], axis=0))


@every_norm
def test_at_a_stationary_point_it_stays(norm):
    """Exact, whatever γ."""
    still = Squares(np.eye(PARTS.size)[None], np.ones((1, PARTS.size)), np.ones(PARTS.size))
    loop = start(EF21LMO(TopK(3), gamma=5.0, norm=norm), Layered(still), 1)
    trajectory(loop, 3)
    assert (loop.x == 1).all()


@every_norm
def test_blocks_step_by_the_norm_of_the_whole(norm):
    """Exact: without compression the iterates are those of one server."""
    runs = [
        mpicomp.run(EF21LMO(WHOLE, gamma=0.05, norm=norm), LAYERED, workers=4, rounds=9, **how)
        for how in ({}, {"server": "sharded", "blocks": 3})
    ]
    assert runs[0].iterates_sha256 == runs[1].iterates_sha256
    assert size(norm, runs[1].x - LAYERED.x0()) > 0.05


# --- the bound ---


def bound(method, c, F, T, sigma, n, b=1):
    """The right side of the docstring's bound, for PARTS, from the gradient."""
    root = sqrt(1 - method.C.alpha(PARTS.size, n))
    Q, eta = root / (1 - root), method.eta
    rho_sq = {"l2": 1, "linf": PARTS.size, "spectral": 3 + 3 + 1 + 2 + 3}[method.norm]
    M = c.L * (1 - eta) / eta + Q * np.mean(c.L_i)
    N = sigma / sqrt(b * n) * (sqrt(eta) + 1 / (eta * T)) + sqrt(2) * Q * eta * sigma / sqrt(b)
    return F / (method.gamma * T) + method.gamma * rho_sq * (c.L / 2 + 2 * M) + 2 * sqrt(rho_sq) * N


@every_norm
@pytest.mark.parametrize("eta", [1.0, 0.2])
@pytest.mark.parametrize("sigma", [0.0, 2.0])
def test_the_bound_of_its_proof_holds_and_theory_minimises_it(norm, eta, sigma):
    """For theory's γ and for others, below and above."""
    n, T = 3, 150
    plain = squares(n, PARTS.size, seed=6)
    problem = Layered(Noisy(plain, sigma=sigma) if sigma else plain)
    c, F = plain.constants(n), objective_value(plain, n, plain.x0()) - plain.constants(n).f_star
    method = EF21LMO(TopK(12), norm=norm, eta=eta, rounds=T, gap=F, batch=1 if sigma else None)
    best = start(method, problem, n).method
    least = bound(best, c, F, T, sigma, n)
    for factor in (0.1, 0.9, 1.0, 1.1, 10.0):
        tried = best.with_step(best.gamma * factor)
        right = bound(tried, c, F, T, sigma, n)
        assert right >= least
        xs = trajectory(start(tried, problem, n, seed=7), T - 1)
        assert np.mean([dual(norm, mean_gradient(plain, n, x)) for x in xs]) <= right


@every_norm
def test_the_bound_holds_on_logistic_regression(norm):
    """From f(x⁰) as the bound on f(x⁰) - f*."""
    n, T = 4, 150
    c, F = LAYERED.constants(n), objective_value(LAYERED, n, LAYERED.x0())
    loop = start(EF21LMO(TopK(12), norm=norm, rounds=T, gap=F), LAYERED, n)
    xs = trajectory(loop, T - 1)
    found = np.mean([dual(norm, mean_gradient(LAYERED, n, x)) for x in xs])
    assert found <= bound(loop.method, c, F, T, 0, n)


def test_theory_by_hand():
    """docs/methods.md, EF21LMO: L = 3 and mean L_i = 3; of 12 coordinates TopK(3) has α = 1/4."""
    given = {"rounds": 100, "gap": 2.0}
    Q = sqrt(3 / 4) / (1 - sqrt(3 / 4))
    for C, q in ((TopK(3), Q), (WHOLE, 0), (Shrunk(RandK(3)), Q)):
        for eta, noise in ((1.0, 0), (0.25, 3 * 3)):
            for norm, rho_sq in (("l2", 1), ("linf", 12)):
                got = resolved(EF21LMO(C, norm=norm, eta=eta, **given), 12, 4).gamma
                assert got == pytest.approx(sqrt(2 / (100 * rho_sq * (3 / 2 + 2 * (noise + 3 * q)))))
    spectral = EF21LMO(WHOLE, norm="spectral", **given).bound(PARTS)
    assert resolved(spectral, PARTS.size, 4).gamma == pytest.approx(sqrt(2 / (100 * 12 * 3 / 2)))
    half = resolved(EF21LMO(WHOLE, gamma="theory*0.5", **given), 12, 4).gamma
    assert half == pytest.approx(0.5 * sqrt(2 / 150))


# --- a network, and what is refused ---


def test_it_trains_a_network_by_matrices():
    """From a compressed start, with batches; nothing is known of the problem."""
    method = EF21LMO(TopK(0.1), gamma=0.1, norm="spectral", eta="decreasing", batch=32)
    rows = mpicomp.run(method, MLP("digits", hidden=16), workers=4, rounds=120, every=120, seed=1).rows
    assert rows[-1].f < 0.3 * rows[0].f


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"C": RandK(2)}, "EF21LMO needs C to be contractive"),
        ({"norm": "l1"}, "norm='l1'; allowed: 'l2', 'linf', 'spectral'"),
        ({"eta": 0}, "eta=0; allowed: a number above 0 and at most 1, or 'decreasing'"),
        ({"eta": 1.5}, "eta=1.5; allowed: a number"),
        ({"eta": "falling"}, "eta='falling'; allowed: a number"),
        ({"rounds": 0}, "rounds=0; allowed: a positive integer"),
        ({"rounds": 2.5}, "rounds=2.5; allowed: a positive integer"),
        ({"gap": 0}, r"gap = 0: a bound on f\(x⁰\) - f\* is a number, finite and above 0"),
        ({"gap": float("inf")}, "gap = inf"),
        ({"gap": "all"}, "gap='all'; allowed: a number above 0"),
        ({"start": "zero"}, "start='zero'"),
        ({"down": RandK(2)}, "down"),
    ],
    ids=repr,
)
def test_other_values_are_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        EF21LMO(**{"C": TopK(2), **wrong})


def test_the_lag_of_nearly_nothing_sent():
    """lag = √(1-α)(1 + √(1-α))/α; to first order in α it is 2/α - 3/2, also where 1 - √(1-α) rounds to 0."""
    for alpha in (1e-8, 1e-17, 1e-300):
        assert lag(alpha) == pytest.approx(2 / alpha - 1.5, rel=1e-14)
    assert lag(1.0) == 0 and lag(0.75) == 1  # 1/2 / (1 - 1/2).  Exact


def test_theory_is_refused_where_there_is_none():
    for given in ({}, {"rounds": 10}, {"gap": 1.0}):
        with pytest.raises(ConfigError, match=r"give rounds and gap; or gamma as a number"):
            start(EF21LMO(TopK(2), **given), Entropy(), 4)
    given = {"rounds": 10, "gap": 1.0}
    with pytest.raises(ConfigError, match=r"eta='decreasing'.* has no theory step size: give gamma"):
        start(EF21LMO(TopK(2), eta="decreasing", **given), Entropy(), 4)
    unbounded = mpicomp.problems.LeastSquares("digits", lam=0.1)
    with pytest.raises(ConfigError, match="samples of bounded variance"):
        start(EF21LMO(TopK(2), batch=2, **given), unbounded, 4)


def test_matrices_are_needed_and_bound():
    """A run binds the method to the parts of its problem."""
    method = EF21LMO(TopK(2), gamma=0.1, norm="spectral")
    assert method.bound(PARTS).parts == PARTS and repr(method.bound(PARTS)) == repr(method)
    assert EF21LMO(TopK(2), gamma=0.1).bound(PARTS) == EF21LMO(TopK(2), gamma=0.1)
    with pytest.raises(ConfigError, match=r"no part has two axes.*norm='linf'"):
        start(method, Quadratics(d=12), 4)
    for lacking, known in ((method, "no parts"), (method.bound(PARTS), f"{PARTS.size} entries")):
        with pytest.raises(ConfigError, match=rf"knows .*{known}.*Call bound\(parts\)"):
            lacking.replica(np.zeros(12))
