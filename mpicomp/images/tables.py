"""The integer tables of the coder: sums of the experts' probabilities, and exp."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from mpicomp.images.experts import about_a_prediction, fixed
from mpicomp.kernels.definition.mixtures import Tables

LARGEST_WEIGHT = 2**16
STEPS = 256  # a logit of 1 has that many units
FINE = 2**80  # fixed point of the powers of exp(-1/256)


@cache
def tables() -> Tables:
    """The tables that the format fixes; integer arithmetic makes them, so they are the same everywhere."""
    about, others = about_a_prediction(), fixed()
    return Tables(about.shape[2], others.shape[1], _sums(about), _sums(others), _exps())


def _sums(probabilities: NDArray[np.int64]) -> NDArray[np.uint32]:
    """For each value 0 .. 256 the sum of the probabilities of the values below it; rows of 8 or a multiple.

    ``probabilities`` has the values on its last axis but one, and the experts on the last.
    """
    *others, values, experts = probabilities.shape
    sums = np.zeros((*others, values + 1, -(-experts // 8) * 8), dtype=np.uint32)
    np.cumsum(probabilities, axis=-2, out=sums[..., 1:, :experts])
    return sums


def _exps() -> NDArray[np.uint32]:
    """2^16 exp(-t/256) for t = 0, 1, .., rounded, up to the first 0."""
    ratio = term = FINE
    for n in range(1, 40):  # the series of exp(-1/256)
        term = -term // (STEPS * n)
        ratio += term
    weights: list[int] = []
    power = FINE
    while not weights or weights[-1]:
        weights.append((power * LARGEST_WEIGHT + FINE // 2) // FINE)
        power = power * ratio // FINE
    return np.array(weights, dtype=np.uint32)
