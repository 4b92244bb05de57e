"""Sums of sparse vectors with k entries each, from many senders: one call adds many short messages.

A call takes some microseconds, in which hundreds of entries are added.  So short messages are copied, end to
end, until they make up a stack; long ones are added one by one, where they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.base.bits import Bytes, expect_length
from mpicomp.base.formats import WIDTH
from mpicomp.codecs.sparse import add_entries
from mpicomp.codecs.values import decode_values
from mpicomp.compressors.base import Sum
from mpicomp.kernels.definition.positions import refused
from mpicomp.kernels.host import Host
from mpicomp.kernels.index_layouts import elias_fano, index_nbytes

SHORT = 2**12  # bytes of a message up to which a copy takes far less time than a call
FULL = 2**16  # bytes of a stack, of at least 16 messages, that a processor's cache holds


class StackedSum(Sum):
    """Adds scale * x_i to ``out`` for vectors x_i with k entries each, sent as an index code and values.

    what  the compressor, which the error for a message of a wrong length names
    """

    def __init__(self, out: NDArray[np.floating], k: int, values: str, scale: float, what: object) -> None:
        self.out, self._k, self._values, self._scale, self._what = out, k, values, scale, what
        self._nbytes = index_nbytes(out.size, k) + k * WIDTH[values]
        on, self._low = kernels.backend_for(out), elias_fano(out.size, k)
        # The kernels that add a stack, or None where messages are added one by one.
        self._on = on if self._low is not None and self._nbytes <= SHORT and isinstance(on, Host) else None
        self._senders: list[int] = []
        self._messages = bytearray()  # of these senders, end to end

    def take(self, i: int, message: Bytes) -> None:
        expect_length(message, self._nbytes, self._what)
        if self._on is None:
            add_entries(message, self.out, self._k, self._values, self._scale)
            return
        self._senders.append(i)
        self._messages.extend(message)
        if len(self._messages) >= FULL:
            self.flush()

    def flush(self) -> None:
        if self._on is None or self._low is None or not self._senders:
            return
        senders, messages = self._senders, np.frombuffer(self._messages, np.uint8)
        self._senders, self._messages = [], bytearray()
        k, rows = self._k, messages.reshape(len(senders), self._nbytes)
        split = self._nbytes - k * WIDTH[self._values]
        entries = decode_values(rows[:, split:].ravel(), rows.shape[0] * k, self._values)
        added = self._on.add_elias_fano_stack(
            rows[:, :split].ravel(), self.out, entries, k, self._low, self._scale
        )
        if added < len(senders):
            raise refused(self.out.size, k, senders[added])
