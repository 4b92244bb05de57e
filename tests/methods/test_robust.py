"""Rules of robust aggregation: what they promise against b liars, and what they do not depend on."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from mpicomp.keys import Key
from mpicomp.methods.support import robust

rng = np.random.default_rng
STREAM = Key(3, 4, None, 9).shared("test/buckets")


def rules(m: int, b: int, centre):
    return {
        "median": robust.median,
        "trimmed": partial(robust.trimmed_mean, b=b),
        "geometric": partial(robust.geometric_median, nu=1e-9),
        "clipping": partial(robust.centred_clipping, centre=centre, radius=None),
        "mean": robust.mean,
    }


def promise(m: int, b: int) -> dict[str, float]:
    return {"median": m / (m - 2 * b), "trimmed": b / (m - 2 * b)}


def excess(result, honest) -> float:
    """|result - mean|² over the variance of the honest rows."""
    mean = honest.mean(axis=0)
    return float(np.sum((result - mean) ** 2) / np.mean(np.sum((honest - mean) ** 2, axis=1)))


@pytest.mark.parametrize(("m", "b"), [(5, 0), (5, 1), (5, 2), (8, 3), (11, 5)])
def test_the_promised_distance_holds_for_any_liars(m, b):
    """kappa of the module's docstring, on rows of many shapes and lies of many sizes; no slack but rounding.
    The five worst."""
    seen = []
    for seed in range(300):
        draw = rng([m, b, seed])
        honest = draw.choice([-1.0, 1.0, 5.0], (m - b, 3)) * draw.normal(size=(m - b, 3)) ** (seed % 3)
        lies = honest.mean(axis=0) + draw.choice([-1.0, 1.0], (b, 3)) * 10.0 ** draw.uniform(-2, 3)
        rows = draw.permutation(np.concatenate([honest, lies]))
        for name, kappa in promise(m, b).items():
            if not np.ptp(honest, axis=0).all():
                continue
            far = excess(rules(m, b, None)[name](rows), honest)
            seen.append((far / kappa if kappa else far * 1e24, name, seed))
    assert all(share <= 1 + 1e-12 for share, _, _ in seen), sorted(seen)[-5:]
    assert b == 0 or max(seen)[0] > 0.5  # lies that hurt are among them


@pytest.mark.parametrize(("m", "b"), [(5, 1), (7, 2), (8, 3), (11, 5)])
def test_the_promised_distance_of_the_trimmed_mean_is_the_least(m, b):
    """Attained: b honest rows at 0 and m - 2b at 1; liars far above."""
    honest = np.array([[0.0]] * b + [[1.0]] * (m - 2 * b))
    rows = np.concatenate([honest, np.full((b, 1), 1e9)])
    assert excess(robust.trimmed_mean(rows, b), honest) == pytest.approx(b / (m - 2 * b), rel=1e-14)


@pytest.mark.parametrize(("m", "b"), [(5, 0), (5, 1), (7, 3), (11, 5)])
def test_the_promised_distance_of_the_median_is_nearly_the_least(m, b):
    """(m - 1)/(m + 1 - 2b) for odd m: (m - 1)/2 honest rows at 0, the others at 1."""
    honest = np.array([[0.0]] * ((m - 1) // 2) + [[1.0]] * ((m + 1) // 2 - b))
    rows = np.concatenate([honest, np.full((b, 1), 1e9)])
    assert excess(robust.median(rows), honest) == pytest.approx((m - 1) / (m + 1 - 2 * b), rel=1e-14)
    assert (m - 1) / (m + 1 - 2 * b) < m / (m - 2 * b)


@pytest.mark.parametrize("name", ["median", "trimmed", "geometric", "clipping", "mean"])
def test_liars_far_away_move_all_but_the_mean_little(name):
    """Two of seven at 1e6; the honest rows have deviations of about 1."""
    honest = rng(1).normal(size=(5, 6))
    rows = np.concatenate([honest, np.full((2, 6), 1e6)])
    moved = np.linalg.norm(rules(7, 2, np.zeros(6))[name](rows) - honest.mean(axis=0))
    assert moved > 1e5 if name == "mean" else moved < 5


@pytest.mark.parametrize("name", ["median", "trimmed", "geometric", "clipping", "mean"])
def test_rules_know_neither_order_nor_sign_nor_scale(name):
    rows, centre = rng(2).normal(size=(7, 6)), np.zeros(6)
    result = rules(7, 2, centre)[name](rows)
    for other in (rows[::-1], rng(3).permutation(rows)):
        assert rules(7, 2, centre)[name](np.ascontiguousarray(other)) == pytest.approx(result, abs=1e-14)
    for factor in (-1.0, 8.0):
        assert rules(7, 2, centre)[name](factor * rows) == pytest.approx(factor * result, abs=1e-13)


@pytest.mark.parametrize("name", ["median", "trimmed", "clipping", "mean"])
def test_rules_move_with_the_rows(name):
    """Exact on integers for the median; the geometric median starts from 0, so it moves with them only in the
    limit."""
    rows, shift = rng(4).integers(-9, 9, (7, 6)).astype(float), np.arange(6.0) * 64
    one, two = (rules(7, 2, centre)[name](rows + centre) - centre for centre in (np.zeros(6), shift))
    assert one == pytest.approx(two, abs=1e-12)
    assert name != "median" or np.array_equal(one, two)


def test_eight_steps_come_near_the_geometric_median():
    """The gradient of sum |row - z| is a sum of unit vectors: 0 at the minimiser, length 7 far away."""
    rows = rng(5).normal(size=(7, 4))
    z = robust.geometric_median(rows, 1e-9)
    away = (z - rows) / np.linalg.norm(z - rows, axis=1)[:, None]
    assert np.linalg.norm(away.sum(axis=0)) < 0.02


def test_distances_below_nu_make_the_geometric_median_the_mean():
    rows = rng(6).normal(size=(7, 4))
    assert robust.geometric_median(rows, 100.0) == pytest.approx(rows.mean(axis=0), abs=1e-14)
    assert np.abs(robust.geometric_median(rows, 1e-3) - rows.mean(axis=0)).max() > 1e-3


def test_a_radius_beyond_all_rows_makes_clipping_the_mean():
    rows = rng(7).normal(size=(7, 4))
    assert robust.centred_clipping(rows, rows[0], 100.0) == pytest.approx(rows.mean(axis=0), abs=1e-14)
    short = robust.centred_clipping(rows, np.full(4, 50.0), 0.5)
    assert np.linalg.norm(short - 50.0) == pytest.approx(
        3 * 0.5, rel=0.01
    )  # three steps of 0.5 from far away


@pytest.mark.parametrize(("n", "size"), [(9, 1), (9, 2), (9, 3), (9, 9), (9, 20), (1, 2)])
def test_buckets_share_out_all_rows(n, size):
    """Exact: rows are powers of 4, so a mean tells which rows are in it."""
    rows = 4.0 ** np.arange(n)[:, None]
    found = robust.bucketed(rows, size, STREAM)
    counts = [min(size, n - j) for j in range(0, n, size)]
    digits = [
        set(np.flatnonzero([round(m * c) >> 2 * i & 3 for i in range(n)]).tolist())
        for m, c in zip(found[:, 0], counts, strict=True)
    ]
    assert [len(one) for one in digits] == counts and set().union(*digits) == set(range(n))
    assert np.array_equal(robust.bucketed(rows, size, STREAM), found)
    if size == 3:
        assert not np.array_equal(robust.bucketed(rows, size, STREAM._replace(seed=4)), found)
