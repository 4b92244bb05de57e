"""Adding to a vector, densely and at some coordinates; each product and sum is rounded once, in float64."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array, Indices


def add_scaled(out: Array, x: Array, scale: float) -> None:
    """out += scale * x."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        out += np.multiply(x, scale, dtype=np.float64)


def gather(x: Array, indices: Indices) -> Array:
    """x[indices]."""
    return x[indices]


def scatter_add(out: Array, indices: Indices, values: Array, scale: float) -> None:
    """out[indices] += scale * values; no index comes twice."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        out[indices] += np.multiply(values, scale, dtype=np.float64)
