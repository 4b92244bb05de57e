"""Coins: the odds of importance sampling, and gains that are their inverses.

The closed forms are those of docs/methods.md, Importance.
Statistical tests have fixed seeds and allow six standard deviations.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mpicomp.compressors import Bernoulli, Importance, Lazy
from mpicomp.keys import Key, odds
from tests.support.sampling import KEY, errors
from tests.support.smoothness_matrices import matrix, weights

rng = np.random.default_rng
ROUNDS = [Key(1, t, 0, 1) for t in range(200)]


@pytest.mark.parametrize("k", [1, 3, 5, 0.5])
def test_the_odds_of_importance_sampling(k):
    """p_j = L_jj/(L_jj + rho), sum p_j = k.  Exactly, over all supports, E |C(x) - x|^2_L = rho |x|^2 for all
    x, which is what ``variance`` says; and no other odds of that sum have a smaller maximum."""
    L = matrix(6, seed=9)
    w, d, count = np.diagonal(L), 6, k if isinstance(k, int) else 3
    c = Importance(k, weights(L))
    rho = c.variance(w)
    p = w / (w + rho)
    assert np.sum(p) == pytest.approx(count, rel=1e-12)
    second = np.zeros((d, d))
    for mask in product([0.0, 1.0], repeat=d):
        D = np.diag(np.array(mask) / p - 1)
        second += np.prod(np.where(mask, p, 1 - p)) * D @ L @ D
    assert np.diagonal(second) == pytest.approx(np.full(d, rho), rel=1e-9)
    assert np.abs(second - np.diag(np.diagonal(second))).max() < 1e-12
    for seed in range(100):
        q = rng(seed).uniform(0.05, 1, d)
        q *= count / np.sum(q)
        if q.max() <= 1:
            assert np.max((1 / q - 1) * w) >= rho * (1 - 1e-12)


def test_coordinates_are_kept_with_these_odds():
    w = weights(matrix(6, seed=9))
    c = Importance(2, w)
    p = np.array(w) / (np.array(w) + c.variance(np.array(w)))
    kept = np.mean(errors(c, np.ones(6), 4000) + 1 != 0, axis=0)
    assert (np.abs(kept - p) <= 6 * np.sqrt(p * (1 - p) / 4000)).all()


def test_equal_weights_are_bernoulli():
    assert Importance(3).omega(12, 4) == pytest.approx(Bernoulli(0.25).omega(12, 4))
    assert Importance(0.25, (7.0,) * 12).omega(12, 4) == pytest.approx(3)


def test_enough_coordinates_for_all_weights_are_all_of_them():
    c = Importance(4, (1.0, 0.0, 2.0, 1e-3, 5.0), "f8")
    x = np.array([1.0, 0.0, 1e-3, -7.0, 2.0])
    assert np.array_equal(c.decompress(c.compress(x, KEY), 5, KEY), x)
    assert len(c.compress(x, KEY)) == 4 * 8
    assert c.variance(np.ones(5)) == 0


def test_weights_of_any_range_have_odds():
    for w in ((1e-300, 1.0, 1e300), (5e-324, 1.0, 1.0), (1.0, 1.0 + 1e-15, 1.0)):
        for k in (1, 2):
            c = Importance(k, w)
            assert c.mean_nbytes(3, 1) == pytest.approx(4 * k, rel=1e-6)


@pytest.mark.parametrize("smallest", [1e-8, 1e-10, 1e-12, 1e-300, 5e-324])
def test_small_odds_leave_no_bias(smallest):
    """The gain of each coordinate is the inverse of its coin's odds, so the mean of C(x) is x."""
    for k in (1, 2):
        c = Importance(k, (1.0, 1e3, 1.0, smallest), "f8")
        gains = np.max([c.decompress(c.compress(np.ones(4), key), 4, key) for key in ROUNDS], axis=0)
        p, drawn = c._probabilities(4), gains > 0
        assert drawn[:3].all() and gains[drawn] * odds(p)[drawn] == pytest.approx(1, rel=1e-15)
        assert (odds(p) > 0).all() and c.variance(np.ones(4)) <= 2.0**32


@pytest.mark.parametrize("q", [1e-12, 1e-10, 0.1, 0.5, 1.0])
def test_gains_are_the_inverse_of_the_odds(q):
    for c in (Bernoulli(q), Lazy(q)):
        assert c.gain(4, KEY) * odds(q) == pytest.approx(1, rel=1e-15)
