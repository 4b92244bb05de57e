"""Levels in steps that differ from coordinate to coordinate, as ``kernels.steps``."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import StreamName
from mpicomp.kernels.cuda.launch import Array, Launching, flat, suffix


def step_symbols(on: Launching, x: Array, norms: Array, r: Array, stream: StreamName) -> Array:
    """The symbols of r x / N, rounded without bias; N >= |x_j| in each block, r below 2^15."""
    out = on.empty(x.size, np.uint16)
    name, blocks = f"step_symbols_{suffix(x)}", divmod(x.size, norms.size)
    on.dense(x.size, "steps", name, x, x.size, *blocks, norms, r, *flat(stream), out)
    return out


def add_steps(on: Launching, symbols: Array, out: Array, norms: Array, r: Array, scale: float) -> None:
    """out += scale N/r times the levels; a level of 0 adds 0, whatever N/r is."""
    name, blocks = f"step_add_{suffix(out)}", divmod(out.size, norms.size)
    on.dense(out.size, "steps", name, symbols, out, out.size, *blocks, norms, r, float(scale))
