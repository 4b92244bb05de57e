"""Random words and permutations that follow from a key."""

from __future__ import annotations

import numpy as np

from mpicomp.kernels.cuda.launch import Array, Launching, flat
from mpicomp.kernels.definition.permutation import SMALL
from mpicomp.kernels.definition.philox import StreamName


class Draws(Launching):
    """As ``definition.philox`` and ``definition.permutation``."""

    def words(self, stream: StreamName, start: int, count: int) -> Array:
        """Words start .. start + count of the stream, uint32."""
        out = self._empty(count, np.uint32)
        self._each(-(-(count + start % 4) // 4), "sparse", "words", start, count, *flat(stream), out)
        return out

    def permute(self, stream: StreamName, d: int, start: int, stop: int) -> Array:
        """pi(start), .., pi(stop - 1), int64, as ``definition.permutation``."""
        if d <= SMALL:
            whole = self._empty(d, np.int64)
            self.device.launch("sparse", "permute_small", 1, 1024, d, *flat(stream), whole)
            return whole[start:stop]
        out = self._empty(stop - start, np.int64)
        self._each(out.size, "sparse", "permute", start, out.size, d, *flat(stream), out)
        return out
