"""Adding to a vector, compiled: one pass, no temporary."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array, Indices
from mpicomp.kernels.compiled.jit import FLOATS, boolean, float64, int64, kernel, read, void, write
from mpicomp.kernels.threads import sliced

_PAIRS = [(o, x) for o in FLOATS for x in FLOATS]


def add_scaled(out: Array, x: Array, scale: float) -> None:
    """out += scale * x."""
    if out.size != x.size:
        raise ValueError(f"vectors of {out.size} and {x.size} coordinates")
    sliced(lambda a, b: _add_scaled(out[a:b], x[a:b], scale), x.size)


def gather(x: Array, indices: Indices) -> Array:
    """x[indices]."""
    out = np.empty(indices.size, dtype=x.dtype)
    if not _gather(x, indices, out):
        raise _outside(indices, x)
    return out


def scatter_add(out: Array, indices: Indices, values: Array, scale: float) -> None:
    """out[indices] += scale * values; no index comes twice."""
    if indices.size != values.size:
        raise ValueError(f"{indices.size} indices of {values.size} values")
    if not _scatter_add(out, indices, values, scale):
        raise _outside(indices, out)


def _outside(indices: Indices, x: Array) -> IndexError:
    return IndexError(f"indices from {indices.min()} to {indices.max()} of {x.size} coordinates")


@kernel(*(void(write(o), read(x), float64) for o, x in _PAIRS))
def _add_scaled(out, x, scale):
    for j in range(out.size):
        out[j] += scale * x[j]


@kernel(*(boolean(read(x), read(int64), write(x)) for x in FLOATS))
def _gather(x, indices, out):
    inside = True
    for j in range(indices.size):
        i = indices[j]
        ok = 0 <= i < x.size
        inside &= ok
        out[j] = x[i if ok else 0]
    return inside


@kernel(*(boolean(write(o), read(int64), read(x), float64) for o, x in _PAIRS))
def _scatter_add(out, indices, values, scale):
    for j in range(indices.size):
        i = indices[j]
        if not 0 <= i < out.size:
            return False
        out[i] += scale * values[j]
    return True
