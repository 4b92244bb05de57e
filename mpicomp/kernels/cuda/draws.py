"""Random words and permutations that follow from a key."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import StreamName
from mpicomp.kernels.cuda.launch import Array, Launching, flat
from mpicomp.kernels.definition.permutation import SMALL


def words(on: Launching, stream: StreamName, start: int, count: int) -> Array:
    """Words start, .., start + count - 1 of the stream, uint32."""
    out = on.empty(count, np.uint32)
    on.each(-(-(count + start % 4) // 4), "sparse", "words", start, count, *flat(stream), out)
    return out


def permute(on: Launching, stream: StreamName, d: int, start: int, stop: int) -> Array:
    """pi(start), .., pi(stop - 1), int64, as ``definition.permutation``."""
    if d <= SMALL:
        whole = on.empty(d, np.int64)
        on.device.launch("sparse", "permute_small", 1, 1024, d, *flat(stream), whole)
        return whole[start:stop]
    out = on.empty(stop - start, np.int64)
    on.each(out.size, "sparse", "permute", start, out.size, d, *flat(stream), out)
    return out
