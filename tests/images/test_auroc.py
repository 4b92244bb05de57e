"""The area under the receiver operating characteristic, against its definition by pairs."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.base.errors import DataError
from mpicomp.images import auroc
from tests.problems.test_problems import rng


def by_pairs(inside, outside) -> float:
    wins = [1.0 if s > t else 0.5 if s == t else 0.0 for s in inside for t in outside]
    return sum(wins) / len(wins)


@pytest.mark.parametrize("levels", [1, 2, 5, 1000])  # the fewer, the more ties
@pytest.mark.parametrize(("m", "k"), [(1, 1), (1, 30), (40, 7), (60, 61)])
def test_it_is_the_share_of_pairs_in_order_and_half_of_those_that_tie(levels, m, k):
    inside = rng(m).integers(0, levels, m) + 0.25 * levels
    outside = rng(k + 1).integers(0, levels, k) + 0.25 * levels
    assert auroc(inside, outside) == by_pairs(inside, outside)  # sums of halves are exact
    assert auroc(inside, outside) + auroc(outside, inside) == pytest.approx(1, abs=1e-15)
    assert auroc(np.exp(inside / levels), np.exp(outside / levels)) == auroc(inside, outside)


def test_scores_that_tell_all_or_nothing():
    assert auroc([2, 3], [0, 1]) == 1
    assert auroc([0, 1], [2, 3]) == 0
    assert auroc([5, 5, 5], [5, 5]) == 0.5
    assert auroc([np.inf, 0], [-np.inf, 0]) == 7 / 8


def test_it_is_the_normal_integral_for_two_normal_sets():
    """P(s > t) for means 1 apart and variances 1 is Phi(1/sqrt 2) = 0.76025; 5 standard errors."""
    m = 20_000
    found = auroc(rng(0).normal(1, 1, m), rng(1).normal(0, 1, m))
    assert abs(found - 0.76025) < 5 * np.sqrt(2 * 0.76 * 0.24 / m)


@pytest.mark.parametrize("wrong", [[], [1.0, np.nan], [[1.0, 2.0]], 3.0])
def test_what_is_no_set_of_scores_is_refused(wrong):
    with pytest.raises(DataError, match=r"scores inside have shape.*allowed"):
        auroc(wrong, [1.0])
    with pytest.raises(DataError, match=r"scores outside have shape.*allowed"):
        auroc([1.0], wrong)
