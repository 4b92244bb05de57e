"""The largest entries of each tile of a matrix."""

from __future__ import annotations

import numpy as np

from mpicomp.kernels.cuda.launch import THREADS, Array, Launching, suffix
from mpicomp.kernels.tiles import Tiles


def top_k_of_tiles(on: Launching, x: Array, tiles: Tiles, k: int) -> Array:
    """The indices of the k largest magnitudes of each tile, as indices into ``tiles.of(x).ravel()``."""
    if k == tiles.size:
        return on.xp.arange(tiles.count * k)
    out, name = on.empty(tiles.count * k, np.int64), f"top_k_of_tiles_{suffix(x)}"
    shape = (tiles.top, tiles.left, tiles.across, tiles.rows, tiles.columns, tiles.width)
    on.device.launch("tiles", name, tiles.count, THREADS, x, *shape, k, out)
    return out
