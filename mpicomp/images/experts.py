"""Fixed distributions of a pixel's value, in integers: the experts that an image model mixes.

An expert is a table of 256 integers that sum to ``TOTAL``; value v has probability table[v] / TOTAL.  Most
are two-sided geometric distributions, about a prediction from the neighbours or about a fixed value.  All
arithmetic is on integers, so every machine has the same tables.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array

TOTAL = 2**16
# 256 times the ratio of the probabilities of neighbouring values: mean deviations from 0.3 to 40.
RATIOS = (32, 96, 160, 208, 236, 250)
CENTRES = tuple(range(0, 256, 17))  # of the 16 experts about a fixed value
CENTRED = 224  # their ratio: a mean deviation of 7

PREDICTORS = 10
EXPERTS = PREDICTORS * len(RATIOS) + len(CENTRES) + 3  # 79

# The steps (down, right) from a pixel to the neighbours of which ``predictions`` is made.
NEAR = {"W": (0, -1), "N": (-1, 0), "NW": (-1, -1), "NE": (-1, 1), "WW": (0, -2), "NN": (-2, 0)}


def seen(horizon: int) -> list[tuple[int, int]]:
    """The steps (down, right) from a pixel to the 2 horizon (horizon + 1) neighbours that a network sees."""
    above = [(down, right) for down in range(-horizon, 0) for right in range(-horizon, horizon + 1)]
    return above + [(0, right) for right in range(-horizon, 0)]


def predictions(near: dict[str, Array]) -> list[Array]:
    """The ten predictions of a pixel, integers from 0 to 255.

    ``near`` has the neighbours' values, signed integers: W, N, NW, NE beside the pixel, WW and NN two away.
    """
    W, N, NW, NE, WW, NN = (near[name] for name in ("W", "N", "NW", "NE", "WW", "NN"))
    plane = W + N - NW
    lower, upper = np.minimum(W, N), np.maximum(W, N)
    median = np.maximum(lower, np.minimum(upper, plane))  # LOCO-I's, of W, N and the plane
    beyond = [plane, 2 * W - WW, 2 * N - NN, W + NE - N]
    return [W, N, NW, NE, (W + N) // 2, median, *(np.minimum(np.maximum(p, 0), 255) for p in beyond)]


@cache
def about_a_prediction() -> NDArray[np.int64]:
    """The tables of the experts about a prediction: [prediction, value, ratio], shape (256, 256, 6)."""
    return _frozen(np.stack([[_geometric(c, r) for c in range(256)] for r in RATIOS], axis=-1))


@cache
def fixed() -> NDArray[np.int64]:
    """The tables of the other experts: [value, expert], shape (256, 19).

    They are the 16 about fixed values, the uniform distribution, and the point masses at 0 and at 255.
    """
    tables = [_geometric(c, CENTRED) for c in CENTRES]
    tables.append(np.full(256, TOTAL // 256))
    tables += [np.where(np.arange(256) == v, TOTAL, 0) for v in (0, 255)]
    return _frozen(np.stack(tables, axis=-1))


def _geometric(centre: int, ratio: int) -> NDArray[np.int64]:
    """The table with probabilities in proportion to (ratio/256)^|v - centre|, about, and at least 1/TOTAL."""
    weights = [2**24]
    for _ in range(255):
        weights.append(weights[-1] * ratio >> 8)
    shares = np.array(weights, dtype=np.int64)[np.abs(np.arange(256) - centre)]
    table = 1 + shares * (TOTAL - 256) // shares.sum()
    table[centre] += TOTAL - table.sum()  # what rounding has left
    return table


def _frozen(tables: NDArray[np.int64]) -> NDArray[np.int64]:
    tables.flags.writeable = False
    return tables
