"""Adding to a vector, densely and at some coordinates; each product and sum is rounded once, in float64."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Float, Indices


def add_scaled(out: Float, x: Float, scale: float) -> None:
    """out += scale * x."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        out += np.multiply(x, scale, dtype=np.float64)


def gather(x: Float, indices: Indices) -> Float:
    """x[indices]."""
    return x[indices]


def scatter_add(out: Float, indices: Indices, values: Float, scale: float) -> None:
    """out[indices] += scale * values; no index comes twice."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        out[indices] += np.multiply(values, scale, dtype=np.float64)
