"""Lengths, bias and variance in the mean: what each class promises, and which constants are attained."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import (
    Absolute,
    BlockSteps,
    Coded,
    CodedGaps,
    Contractive,
    Dithering,
    HardThreshold,
    Layered,
    Lossless,
    Natural,
    PermK,
    Quantized,
    QuantizedTopK,
    RandK,
    Shrunk,
    Sign,
    Ternary,
    TopK,
    TwoMeans,
    Unbiased,
    VaryingSteps,
)
from mpicomp.compressors.support.sparsifier import Sparsifier
from mpicomp.keys import Key
from tests.support.sampling import SIGMAS, apply, assert_mean, each, mean_error, of, simulation, square


@each
def test_mean_nbytes_is_the_mean_length(case):
    """Within six standard deviations, plus the byte of rounding that ``Quantized`` allows itself."""
    unknown = Lossless | HardThreshold | Coded | CodedGaps | VaryingSteps | BlockSteps
    if case.c.nbytes(case.d) is None and any(isinstance(c, unknown) for c in made_of(case.c)):
        with pytest.raises(ConfigError, match="no expected size"):
            case.c.mean_nbytes(case.d, case.n)
        return
    lengths = simulation(case).lengths
    slack = 1.0 if isinstance(case.c, Quantized) else 1e-9
    error = SIGMAS * lengths.std() / sqrt(lengths.size)
    assert abs(lengths.mean() - case.c.mean_nbytes(case.d, case.n)) <= error + slack


def made_of(c):
    """The compressor ``c``, and those in it whose messages are in its own."""
    if isinstance(c, Layered):
        return [inner for m in c.members(c.parts.size) for inner in made_of(m.C)]
    return [c, *(inner for name in ("Q", "U") if hasattr(c, name) for inner in made_of(getattr(c, name)))]


@of(Unbiased)
def test_unbiased(case):
    """Each coordinate on each worker.

    A coordinate just off a level is moved by roundings too rare to be seen in so few rounds.  So none
    counts as varying less than a third of what the vector's do in the root mean square: with a jump J
    and at most 20 chances in all, 20 J / ROUNDS < 6 (J/2) / (3 sqrt(ROUNDS)).  And 2^-22 of x_j goes to
    the rounding of a norm to float32, whose correction is rarer still.
    """
    s = simulation(case)
    typical = np.sqrt(np.mean(s.deviation**2, axis=1, keepdims=True))
    allowed = SIGMAS * np.maximum(s.deviation, typical / 3) + 2.0**-22 * np.abs(s.x)
    assert (np.abs(s.bias) <= allowed).all()


@of(Unbiased)
def test_omega_bounds_the_variance(case):
    """For sparsifiers with equality, whatever the vector: E |C(x) - x|^2 = (gain - 1) |x|^2."""
    s, omega = simulation(case), case.c.omega(case.d, case.n)
    for errors, x in zip(s.errors.T, s.x, strict=True):
        assert_mean(errors, omega * square(x), isinstance(case.c, Sparsifier))


@of(Unbiased)
def test_the_ab_inequality(case):
    """For sparsifiers with equality: independent ones A = omega/n, PermK A = B.

    A shared mask errs by omega |mean a_i|^2, as one worker with the mean would.
    """
    s, (a, b) = simulation(case), case.c.ab(case.d, case.n)
    squares, of_mean = np.mean(np.square(s.x).sum(axis=1)), square(s.x.mean(axis=0))
    assert a >= b >= 0
    shared = isinstance(case.c, RandK) and case.c.mask == "shared"
    assert_mean(s.joint, a * squares - b * of_mean, isinstance(case.c, Sparsifier) and not shared)
    if shared:
        assert_mean(s.joint, case.c.omega(case.d, case.n) * of_mean, equality=True)


@of(Contractive)
def test_alpha_bounds_the_error(case):
    s, alpha = simulation(case), case.c.alpha(case.d, case.n)
    assert 0 < alpha <= 1
    for errors, x in zip(s.errors.T, s.x, strict=True):
        assert_mean(errors, (1 - alpha) * square(x), equality=False)


@of(Absolute)
def test_delta_bounds_the_error(case):
    assert (simulation(case).errors <= case.c.delta(case.d)).all()


@pytest.mark.parametrize("d", [2, 9, 32])
def test_omega_of_ternary_is_attained(d):
    t = 1 / (sqrt(d) + 1)
    x = np.array([1.0] + [t] * (d - 1))
    assert_mean(mean_error(Ternary("f8"), x), (sqrt(d) - 1) / 2, equality=True)
    assert Ternary().omega(d, 1) == (sqrt(d) - 1) / 2


@pytest.mark.parametrize("values", ["f4", "f8"])
def test_omega_of_natural_compression_is_attained(values):
    x = 4 / 3 * 2.0 ** np.arange(-6, 6)
    assert_mean(mean_error(Natural(values), x), 1 / 8, equality=True)


def test_omega_of_natural_compression_is_nowhere_exceeded():
    """Its two roundings of m in [1, 2) err by (m - 1)(2 - m) in the mean, exactly."""
    for m in np.linspace(1, 2, 33):
        x = np.full(64, m)
        assert_mean(mean_error(Natural("f8"), x, rounds=200), (m - 1) * (2 - m) / m**2, equality=True)


def test_omega_of_dithering_is_attained_halfway_between_levels():
    """At the largest coordinate exact and the others half a level up, p = inf: (d-1)/4 (N/s)^2."""
    s, d = 3, 10
    x = np.array([1.0] + [0.5 / s] * (d - 1))
    expected = (d - 1) / (4 * s**2) / square(x)
    assert_mean(mean_error(Dithering(s, "inf", "f8"), x), expected, equality=True)
    assert expected <= Dithering(s, "inf").omega(d, 1)


@pytest.mark.parametrize(("c", "d"), [(Dithering(1), 16), (Dithering(4), 400), (Dithering(20), 7)])
def test_omega_of_qsgd_on_constant_vectors(c, d):
    """All |x_j| = N/sqrt(d): each coordinate errs by its Bernoulli variance, f (1 - f) (N/s)^2."""
    f = c.s / sqrt(d) % 1
    expected = d * f * (1 - f) / c.s**2
    assert_mean(mean_error(c, np.ones(d), rounds=2000), expected, equality=True)
    assert expected <= c.omega(d, 1) + 1e-12


@pytest.mark.parametrize("layout", ["uniform", "block"])
def test_omega_of_randk_holds_with_equality_on_a_single_entry(layout):
    """The heaviest tail there is: d^2/k^2 with probability k/d."""
    x = np.zeros(12)
    x[5] = 1.0
    assert_mean(mean_error(RandK(3, layout), x), 3.0, equality=True)


@pytest.mark.parametrize(
    ("n", "d", "a"), [(12, 4, 3 / 11), (13, 4, 10 / 36), (4, 13, 1.0), (5, 5, 1.0), (1, 3, 0.0)]
)
def test_the_ab_constants_of_permk(n, d, a):
    """For n = 13 it is (n - q)/(q (n - 1)), not (d - 1)/(n - 1): both sides are told apart."""
    assert PermK().ab(d, n) == pytest.approx((a, a), rel=1e-15)
    assert PermK("block").ab(d, n) == PermK().ab(d, n)


@pytest.mark.parametrize("layout", ["uniform", "block"])
@pytest.mark.parametrize(("n", "d"), [(12, 4), (13, 4), (5, 13), (4, 4)])
def test_permk_attains_its_constants_on_opposed_workers(n, d, layout):
    """a_i of mean zero, where A alone counts."""
    a = np.zeros((n, d))
    a[0], a[1] = 1.0, -1.0
    c, errors = PermK(layout), []
    for t in range(1500):
        mean = sum(apply(c, a[i], Key(4, t, i, n)) for i in range(n)) / n
        errors.append(square(mean))
    assert_mean(np.array(errors), c.ab(d, n)[0] * 2 * d / n, equality=True)


def test_omega_of_a_composition_multiplies_and_is_attained():
    """1 + omega = (d/k)(1 + 1/8) at |x_j| = 4/3."""
    c, x = Quantized(RandK(4), Natural("f8")), np.full(12, 4 / 3)
    assert c.omega(12, 1) == pytest.approx(3 * 9 / 8 - 1, rel=1e-15)
    assert_mean(mean_error(c, x), 3 * 9 / 8 - 1, equality=True)


def test_omega_of_a_composition_takes_the_dimension_of_the_support():
    d, k = 100, 9
    assert Quantized(RandK(k), Ternary()).omega(d, 1) == pytest.approx(d / k * (1 + (sqrt(k) - 1) / 2) - 1)
    assert Quantized(PermK(), Ternary()).omega(d, 8) == pytest.approx(8 * (1 + (sqrt(13) - 1) / 2) - 1)
    assert QuantizedTopK(k, Ternary()).alpha(d, 1) == pytest.approx(k / (d * (1 + (sqrt(k) - 1) / 2)))


@pytest.mark.parametrize("k", [1, 3, 8])
def test_alpha_of_topk_is_attained_on_constant_magnitudes(k):
    x = np.array([1.0, -1.0] * 4)
    assert square(apply(TopK(k), x) - x) == (1 - TopK(k).alpha(8, 1)) * square(x)


@pytest.mark.parametrize("d", [1, 2, 8, 32])
def test_the_error_of_the_scaled_sign_is_exact(d):
    """|C(x) - x|^2 = |x|^2 - |x|_1^2 / d for each x; on integers and d a power of two to the last bit."""
    for seed in range(20):
        x = np.random.default_rng([d, seed]).integers(-9, 10, d).astype(float)
        assert square(apply(Sign(), x) - x) == square(x) - np.abs(x).sum() ** 2 / d


@pytest.mark.parametrize("k", [1, 2, 8, 32])
def test_the_error_of_signs_after_topk_is_exact(k):
    """|C(x) - x|^2 = |x|^2 - |x_K|_1^2 / k for each x; at most (1 - 1/d) |x|^2."""
    C, d = QuantizedTopK(k, Sign()), 32
    assert C.alpha(d, 1) == 1 / d
    for seed in range(20):
        x = np.random.default_rng([k, seed]).integers(-9, 10, d).astype(float)
        largest = np.sort(np.abs(x))[-k:].sum()
        assert square(apply(C, x) - x) == square(x) - largest**2 / k <= (1 - 1 / d) * square(x)


def test_the_error_of_two_means_is_exact():
    """|C(x) - x|^2 = |x|^2 - |x_U|_1^2 / b - |x_V|_1^2 / (d - b), with b = 4 and d = 20; also after TopK."""
    for seed in range(20):
        x = np.random.default_rng(seed).integers(-9, 10, 20).astype(float)
        large, small = np.split(np.sort(np.abs(x))[::-1], [4])
        error = square(x) - large.sum() ** 2 / 4 - small.sum() ** 2 / 16
        assert square(apply(TwoMeans(), x) - x) == error
        beside = np.concatenate([x, np.full(30, 0.25)])
        kept = QuantizedTopK(20, TwoMeans())
        chosen = np.argsort(-np.abs(beside), kind="stable")[:20]
        large, small = np.split(np.sort(np.abs(beside[chosen]))[::-1], [4])
        error = square(beside) - large.sum() ** 2 / 4 - small.sum() ** 2 / 16
        assert square(apply(kept, beside) - beside) == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6, 7, 10, 11, 25, 26, 100])
def test_alpha_of_two_means(d):
    """A single entry attains 1/b for d > 5, two equal ones 2/3 for d = 4; no vector of two levels and zeros
    falls below alpha, nor one with a part of an entry."""
    C, b = TwoMeans("f8"), -(-d // 5)
    alpha = C.alpha(d, 1)
    assert alpha == (1 / b if b > 1 else 2 / (1 + sqrt(d)))
    single = np.zeros(d)
    single[d // 2] = 8.0
    if b > 1:
        assert square(apply(C, single) - single) == pytest.approx((1 - alpha) * 64, rel=1e-12)
    if d == 4:
        x = np.array([0.0, 2.0, 0.0, -2.0])
        assert square(apply(C, x) - x) == pytest.approx((1 - alpha) * 8, rel=1e-12)
    for top in (1.0, 1.5, 4.0, 30.0):
        for others in range(d):
            for part in (0.0, 0.5):
                x = np.zeros(d)
                x[: others + 1] = 1.0
                x[0] = top
                x[min(others + 1, d - 1)] += part
                assert square(apply(C, x) - x) <= (1 - alpha) * square(x) * (1 + 1e-12)


def test_a_fifth_is_the_best_share_of_exponential_magnitudes():
    """Quantiles of |x| ~ Exp(1): of their variance around their mean two means keep 0.647, at most."""
    d = 10_000
    x = -np.log((np.arange(d) + 0.5) / d)  # decreasing
    explained = [x[:b].sum() ** 2 / b + x[b:].sum() ** 2 / (d - b) for b in range(1, d)]
    assert abs(1 + np.argmax(explained) - d // 5) < d / 200
    error = square(apply(TwoMeans("f8"), x) - x)
    assert 1 - error / square(x - x.mean()) == pytest.approx(0.647, abs=1e-3)


def test_what_zeros_add_to_the_error_of_the_scaled_sign():
    """z (|x|_1 / d)^2; without it, |x|^2 - (1 + z/d) |x|_1^2 / d.  Here d = 16 and z = 4."""
    x = np.array([1.0, -2.0, 0.0, 3.0, -0.0, 5.0, 0.0, -4.0, 2.0, 7.0, -1.0, 0.0, 6.0, 3.0, -2.0, 4.0])
    error, mass = apply(Sign(), x) - x, np.abs(x).sum()
    assert (mass, np.count_nonzero(x)) == (40, 12)
    assert square(error) == square(x) - mass**2 / 16
    assert square(error[x == 0]) == 4 * (mass / 16) ** 2
    assert square(error[x != 0]) == square(x) - (1 + 4 / 16) * mass**2 / 16


def test_alpha_of_the_scaled_sign_is_attained_on_a_single_entry():
    x = np.zeros(8)
    x[3] = -2.0
    assert square(apply(Sign(), x) - x) == (1 - Sign().alpha(8, 1)) * square(x)


def test_alpha_of_a_shrunk_randk_is_attained():
    """E |U/(1 + omega) - x|^2 = omega/(1 + omega) |x|^2, even draw by draw: k of d coordinates are right."""
    x = np.array([1.0, -1.0] * 6)
    c = Shrunk(RandK(3))
    assert c.alpha(12, 1) == 1 / 4
    for t in range(20):
        assert square(apply(c, x, Key(1, t, 0, 1)) - x) == 9.0
