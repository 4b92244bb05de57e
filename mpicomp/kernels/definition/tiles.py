"""The largest entries of each tile of a matrix."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array, Indices
from mpicomp.kernels.definition.selection import magnitude_bits
from mpicomp.kernels.tiles import Tiles


def top_k_of_tiles(x: Array, tiles: Tiles, k: int) -> Indices:
    """The indices of the k largest magnitudes of each tile, as indices into ``tiles.of(x).ravel()``.

    They increase; ties go to the lowest index.
    """
    if k == tiles.size:
        return np.arange(tiles.count * k)
    bits, at = magnitude_bits(tiles.of(x)), tiles.size - k
    threshold = np.partition(bits, at, axis=1)[:, at, None]
    kept, tied = bits > threshold, bits == threshold
    kept |= tied & (np.cumsum(tied, axis=1) <= k - kept.sum(axis=1, keepdims=True))
    return np.flatnonzero(kept)
