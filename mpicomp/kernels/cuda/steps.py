"""Levels in steps that differ from coordinate to coordinate, as ``kernels.definition.steps``."""

from __future__ import annotations

import numpy as np

from mpicomp.kernels.cuda.launch import Array, Launching, flat, suffix
from mpicomp.kernels.definition.philox import StreamName


class Steps(Launching):
    """Symbols from a vector, and added to one."""

    def step_symbols(self, x: Array, norms: Array, r: Array, stream: StreamName) -> Array:
        """The symbols of r x / N, rounded without bias; N >= |x_j| in each block, r below 2^15."""
        out = self._empty(x.size, np.uint16)
        name, blocks = f"step_symbols_{suffix(x)}", divmod(x.size, norms.size)
        self._dense(x.size, "steps", name, x, x.size, *blocks, norms, r, *flat(stream), out)
        return out

    def step_add(self, symbols: Array, out: Array, norms: Array, r: Array, scale: float) -> None:
        """out += scale N/r times the levels; a level of 0 adds 0, whatever N/r is."""
        name, blocks = f"step_add_{suffix(out)}", divmod(out.size, norms.size)
        self._dense(out.size, "steps", name, symbols, out, out.size, *blocks, norms, r, float(scale))
