"""Muon's approximation of the polar factor, and the methods that step along it."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.base.parts import Part, Parts
from mpicomp.compressors import TopK
from mpicomp.methods import EF21LMO, EF21Muon
from mpicomp.methods.support.lmo import steepest
from tests.reference.ef21lmo import lmo
from tests.support.layers import LAYERED, PARTS, SHAPES, steps_of
from tests.support.trajectories import start

SINGLE = 2e-5  # of entries up to 1: 30 products of sums in float32, which grow small errors up to 485 times


def direction(g, parts=PARTS, polar="newton-schulz"):
    return steepest("spectral", g, parts, polar)


def of_matrix(G):
    """The direction of a matrix, of its shape."""
    return direction(G.ravel(), Parts((Part("a", G.shape),))).reshape(G.shape)


def with_values(rows, columns, values, seed=1):
    """A matrix of those singular values."""
    draw = np.random.default_rng(seed)
    U, V = (np.linalg.qr(draw.normal(size=(m, len(values))))[0] for m in (rows, columns))
    return (U * values) @ V.T


def test_it_is_its_transcription():
    """Of matrices, wide, tall and square; other parts have their signs."""
    draw = np.random.default_rng(2)
    for _ in range(20):
        g = draw.normal(size=PARTS.size)
        assert np.abs(direction(g) + lmo("newton-schulz", g, SHAPES)).max() < SINGLE
    for shape in ((8, 40), (40, 8), (12, 12)):
        G = draw.normal(size=shape)
        assert np.abs(of_matrix(G).ravel() + lmo("newton-schulz", G.ravel(), [shape])).max() < SINGLE


@pytest.mark.parametrize("shape", [(20, 30), (30, 20)])
def test_singular_values_lie_about_1(shape):
    """Between 0.67 and 1.21 where they are at least 0.0015 of the Frobenius norm, at most 485 times theirs
    where they are less; singular vectors stay."""
    values = np.geomspace(1, 1e-5, 20)
    G = with_values(*shape, values)
    U, _, V = np.linalg.svd(G, full_matrices=False)
    found = np.diag(U.T @ of_matrix(G) @ V.T)
    assert np.abs(of_matrix(G) - (U * found) @ V).max() < SINGLE
    shares = values / np.linalg.norm(values)
    large = shares >= 0.0015
    assert 5 < large.sum() < 15
    assert found[large].min() > 0.67 and found[large].max() < 1.21
    assert (found[~large] > 0).all() and (found[~large] <= 485 * shares[~large] + SINGLE).all()


def test_the_range_of_the_polynomial():
    """That of the docstring, of every singular value, and it is nearly attained."""
    shares = np.geomspace(1e-6, 1, 200001)
    values = shares
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    large = values[shares >= 0.0015]
    assert 0.67 < large.min() < 0.69 and 1.2 < large.max() < 1.21
    assert 484 < values[0] / shares[0] and (values <= 485 * shares).all() and values.max() < 1.21


def test_the_size_does_not_matter():
    """Exact, for powers of two, from the smallest to the largest numbers."""
    g = np.random.default_rng(3).normal(size=PARTS.size)
    for scale in (2.0**-900, 2.0**-30, 2.0**900):
        for polar in ("svd", "newton-schulz"):
            assert np.array_equal(direction(scale * g, polar=polar), direction(g, polar=polar))
    assert not direction(np.zeros(PARTS.size)).any()


def test_singular_values_beyond_double_precision_do_not_matter():
    """Exact: entries of 2^1023, whose norm no float64 holds, have the direction of ones."""
    g = np.ones(PARTS.size)
    for polar in ("svd", "newton-schulz"):
        assert direction(g, polar=polar).all()
        assert np.array_equal(direction(2.0**1023 * g, polar=polar), direction(g, polar=polar))


def test_a_matrix_of_low_rank_stays_so():
    """What rounding adds is far below what a singular value of a gradient becomes."""
    values = np.linalg.svd(of_matrix(with_values(20, 30, [3.0, 1.0])))[1]
    assert 0.67 < values[1] and values[2:].max() < 1e-3


def test_what_is_not_finite_is_a_divergence():
    for bad in (np.nan, np.inf):
        g = np.ones(PARTS.size)
        g[5] = bad  # in a matrix
        with pytest.raises(DivergedError):
            direction(g)


@pytest.mark.parametrize("eta", [1.0, "decreasing"])
def test_runs_step_along_it(eta):
    """docs/methods.md, EF21LMO, and EF21Muon, whose server has h and makes up for what it has not sent."""
    t, how = steps_of(eta, 1.0)[0], {"norm": "spectral", "polar": "newton-schulz", "eta": eta, "gamma": 0.05}
    one, both = (
        start(EF21LMO(TopK(9), **how), LAYERED, 4),
        start(EF21Muon(TopK(9), TopK(9), **how), LAYERED, 4),
    )
    for k in range(20):
        before = both.server.e.copy()
        one.step(k)
        both.step(k)
        assert np.abs(one.replica.g + t(k) * lmo("newton-schulz", one.replica.h, SHAPES)).max() < SINGLE
        q = before - t(k) * lmo("newton-schulz", both.server.h, SHAPES)
        assert np.abs(both.replica.g + both.server.e - q).max() < SINGLE


@pytest.mark.parametrize("make", [EF21LMO, lambda C, **how: EF21Muon(C, TopK(3), **how)], ids=["LMO", "Muon"])
def test_it_is_for_matrices_and_has_no_theory(make):
    for norm in ("l2", "linf"):
        with pytest.raises(ConfigError, match=r"polar='newton-schulz' with norm=.*Take norm='spectral'"):
            make(TopK(3), norm=norm, polar="newton-schulz")
    with pytest.raises(ConfigError, match="polar='taylor'; allowed: 'svd', 'newton-schulz'"):
        make(TopK(3), norm="spectral", polar="taylor")
    method = make(TopK(3), norm="spectral", polar="newton-schulz", rounds=10, gap=1.0)
    with pytest.raises(ConfigError, match=r"has no theory step size.*gamma as a number, or take polar='svd'"):
        start(method, LAYERED, 4)
