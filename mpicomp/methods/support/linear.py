"""Methods whose workers send linear images of their vectors, such as the factors of a matrix."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from mpicomp.base.formats import WIDTH
from mpicomp.compressors import Compressor, Identity
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.support.averaging import AveragingMethod, Each


class LinearMethod(AveragingMethod):
    """Each worker sends a linear image of its vector, uncompressed, and the mean of the images is broadcast.

    All workers apply the same linear map, whose images may have any length.  So the mean of the images is the
    image of the mean.  The ranks need nothing else of each other, and MPI_Allreduce can compute it.
    Subclasses are dataclasses with a field ``values``, the format in which images are sent.
    """

    values: str

    def uplink(self, key: Key) -> Compressor:
        return self.in_these_blocks(Identity(self.values))

    @abstractmethod
    def entries(self, d: int, key: Key) -> int: ...

    def server_step(self, s: Any, r: Any, key: Key) -> Each:
        Q, mean = self.uplink(key), np.zeros_like(r.x, shape=0, dtype=np.float64)

        def add(k: Key, up: Message) -> None:
            nonlocal mean
            if mean.size == 0:
                # By the message: a block's server has its share of it, and ``entries`` is of the whole.
                mean = np.zeros_like(mean, shape=len(up.m) // WIDTH[self.values])
            Q.decompress_add(up.m, mean, k, self.weight(key))

        return Each(add, lambda: Message(self.down.compress(mean, key)))

    def paper_bits(self, up: Message, d: int, key: Key) -> int:
        return 32 * (len(up.m) // WIDTH[self.values])

    def paper_bits_down(self, broadcast: Message, d: int, key: Key) -> int:
        return self.down.paper_bits(broadcast.m, self.entries(d, key), key)
