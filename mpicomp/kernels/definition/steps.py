"""Levels of norms that differ from block to block, in steps that differ from coordinate to coordinate.

A coordinate of resolution r has the levels -s .. s, s = ceil(r), for which the symbols 0 .. 2 s stand; level
l is the number l N/r, N being the norm of its block.  Blocks are contiguous, and their sizes differ by at
most one, the larger ones first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array, Reals, StreamName, Symbols
from mpicomp.kernels.definition.philox import words
from mpicomp.kernels.definition.rounding import uniform_levels


def step_symbols(x: Array, norms: Reals, r: Reals, stream: StreamName) -> Symbols:
    """The symbols of r x / N, rounded without bias; N >= |x_j| in each block, r below 2^15.

    The odds of rounding up are rounded up to multiples of 2^-32, so a mean is off by up to 2^-32 N/r.
    """
    starts = block_ends(x.size, norms.size)[:-1]
    draws = np.split(words(stream, 0, x.size), starts)
    blocks = zip(np.split(x, starts), norms.tolist(), np.split(r, starts), draws, strict=True)
    level = np.concatenate([uniform_levels(*block) for block in blocks])
    return (np.ceil(r) + level).astype(np.uint16)


def add_steps(symbols: Symbols, out: Array, norms: Reals, r: Reals, scale: float) -> None:
    """out += scale N/r times the levels."""
    N = np.repeat(norms, np.diff(block_ends(out.size, norms.size), prepend=0))
    with np.errstate(over="ignore", invalid="ignore"):
        out += step_values(symbols, N, r, scale)


def step_values(symbols: Symbols, N: Array, r: Array, scale: float) -> Reals:
    """scale N/r times the levels, N having a norm for each; 0 for the level 0, whatever N/r is."""
    level = symbols - np.ceil(r)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return np.where(level == 0, 0.0, level * (N / r * scale))


def block_ends(d: int, blocks: int) -> NDArray[np.int64]:
    """The end of each block of d coordinates, shape (blocks,)."""
    short, longer = divmod(d, blocks)
    return np.cumsum(short + (np.arange(blocks) < longer))
