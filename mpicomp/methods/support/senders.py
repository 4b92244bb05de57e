"""The mean of sparse messages over those workers that sent a coordinate, instead of over all n."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.compressors.base import Compressor, Sum
from mpicomp.keys import Key


class SenderMean(Sum):
    """g_j = Σ_i m_ij / max(1, c_j); c_j is the number of workers whose messages have a value at j.

    A value of 0 that was sent counts.  One count is kept for each coordinate, and a message costs time in
    proportion to its coordinates.

    C      the compressor of the messages, which ``selects``
    total  adds the messages, each with the weight 1
    key    of the round
    """

    def __init__(self, C: Compressor, total: Sum, key: Key) -> None:
        self.out, self._C, self._total, self._key = total.out, C, total, key
        self._counts = np.zeros_like(total.out, dtype=np.int32)

    def take(self, i: int, message: Bytes) -> None:
        self._total.take(i, message)
        for where in self._C.coordinates(message, self._counts.size, self._key.of(i)):
            self._counts[where] += 1

    def flush(self) -> None:
        self._total.flush()

    def close(self) -> Array:
        total = self._total.close()
        total /= np.maximum(self._counts, 1)
        return total
