"""Rules that make one vector of n of which b may be anything: robust aggregation.

Each takes rows, an array of shape (m, d), and returns an array of shape (d,).  They need all rows at once.
Sums are taken in the order of the rows.

rule         result                                                                       κ
"mean"       the mean                                                                     0, for b = 0
"median"     the median of each coordinate                                                m/(m - 2b)
"trimmed"    the mean of each coordinate without its b largest and b smallest values      b/(m - 2b)
"geometric"  the z of the least Σ |row - z|, nearly: smoothed Weiszfeld (RFA)             -
"clipping"   the mean of the rows, each cut to a distance from a centre                   -

κ is a number with |result - mean of S|² ≤ κ V for any set S of m - b rows, whatever the other b are; V is
the mean over S of |row - mean of S|².  Proof, for one coordinate; add them up.  In a list of G = m - b
numbers with mean μ and variance V, the mean of any k of them is at most √(V (G - k)/k) from μ: their
deviations have a sum s, those of the others -s, and by Cauchy-Schwarz s²/k + s²/(G - k) ≤ G V.
The median: at least m/2 numbers are no less than it, so k ≥ m/2 - b of S are.  Their mean is no less than
the median, so the median is at most √(V (G - k)/k) above μ, and (G - k)/k ≤ m/(m - 2b).  Likewise below.
The trimmed mean: the number of rank r of all is at most the number of rank r in S, so the mean of the ranks
b + 1, .., m - b of all is at most that of k = m - 2b numbers of S, and (G - k)/k = b/(m - 2b).  Likewise
below.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.keys import Stream

RULES = ("median", "trimmed", "geometric", "clipping", "mean")
BY_COORDINATES = ("median", "trimmed", "mean")  # each coordinate alone
WEISZFELD = 8  # steps
CLIPPINGS = 3


def bucketed(rows: Array, size: int, stream: Stream) -> Array:
    """The means of random buckets of ``size`` rows, drawn from ``stream``; the last bucket takes the rest.

    A row is in one bucket.  Size 1 gives the rows, in their order.
    """
    if size == 1:
        return rows
    order = stream.permutation(len(rows), 0, len(rows)).tolist()
    return np.stack([mean([rows[i] for i in order[j : j + size]]) for j in range(0, len(order), size)])


def mean(rows: Sequence[Array] | Array) -> Array:
    """The mean of the rows."""
    total = rows[0].copy()
    for row in rows[1:]:
        total += row
    total /= len(rows)
    return total


def median(rows: Array) -> Array:
    """The median of each coordinate; for an even number of rows the mean of the middle two."""
    ordered, m = np.sort(rows, axis=0), len(rows)
    return mean(ordered[(m - 1) // 2 : m // 2 + 1])


def trimmed_mean(rows: Array, b: int) -> Array:
    """The mean of each coordinate without its b largest and b smallest values; b is below half the rows."""
    return mean(np.sort(rows, axis=0)[b : len(rows) - b])


def geometric_median(rows: Array, nu: float) -> Array:
    """Eight steps of Weiszfeld's algorithm from z = 0: z = the rows' mean, weighted by 1/max{ν, |row - z|}.

    Rows nearer than ν have equal weights.
    """
    z = np.zeros_like(rows[0])
    for _ in range(WEISZFELD):
        weights = [1 / max(nu, kernels.norm(row - z)) for row in rows]
        whole = sum(weights)
        z = np.zeros_like(z)
        for row, weight in zip(rows, weights, strict=True):
            z += (weight / whole) * row
    return z


def centred_clipping(rows: Array, centre: Array, radius: float | None) -> Array:
    """Three steps v = v + mean min{1, τ/|row - v|} (row - v) from v = ``centre``.

    τ is ``radius``, or with None the median of the |row - v| in each step.
    """
    v = centre.copy()
    for _ in range(CLIPPINGS):
        lengths = [kernels.norm(row - v) for row in rows]
        reach = float(np.median(lengths)) if radius is None else radius
        change = np.zeros_like(v)
        for row, length in zip(rows, lengths, strict=True):
            change += (min(1.0, reach / length) if length else 1.0) * (row - v)
        change /= len(rows)
        v += change
    return v
