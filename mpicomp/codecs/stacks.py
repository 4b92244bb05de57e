"""Sparse vectors with k entries each, of many senders: short messages are added many in one call.

A call takes some microseconds, in which hundreds of entries are added.  So short messages are copied, end to
end, until they make up a stack; long ones are added one by one, where they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.base.bits import Bytes, expect_length
from mpicomp.base.formats import WIDTH
from mpicomp.codecs.sparse import add_entries
from mpicomp.codecs.values import decode_values
from mpicomp.kernels.definition.positions import refused
from mpicomp.kernels.host import Host
from mpicomp.kernels.index_layouts import elias_fano, index_nbytes

SHORT = 2**12  # bytes of a message up to which a copy takes far less time than a call
FULL = 2**16  # bytes of a stack, of at least 16 messages, that a processor's cache holds


@dataclass
class _Stack:
    """Messages end to end, and their senders."""

    senders: list[int] = field(default_factory=list)
    messages: bytearray = field(default_factory=bytearray)


def add_each(
    messages: Iterable[tuple[int, Bytes]],
    out: NDArray[np.floating],
    k: int,
    values: str,
    scale: float,
    what: object,
) -> None:
    """``add_entries`` of each of ``messages``, pairs of a worker and bytes, in turn.

    Bytes need be valid only until the next pair is taken.
    Raises the ``MessageError`` of the first bad message, after those before it have been added.  Its
    ``worker`` is the sender if more messages have been taken since.  ``what`` names one of another length.
    """
    nbytes = index_nbytes(out.size, k) + k * WIDTH[values]
    on, low = kernels.backend_for(out), elias_fano(out.size, k)
    if low is None or nbytes > SHORT or not isinstance(on, Host):
        for _, buf in messages:
            expect_length(buf, nbytes, what)
            add_entries(buf, out, k, values, scale)
        return

    def add(stack: _Stack) -> None:
        rows = np.frombuffer(stack.messages, np.uint8).reshape(len(stack.senders), nbytes)
        split = nbytes - k * WIDTH[values]
        entries = decode_values(rows[:, split:].ravel(), rows.shape[0] * k, values)
        added = on.add_elias_fano_stack(rows[:, :split].ravel(), out, entries, k, low, scale)
        if added < len(stack.senders):
            raise refused(out.size, k, stack.senders[added])

    stack = _Stack()
    try:
        for i, buf in messages:
            expect_length(buf, nbytes, what)
            stack.senders.append(i)
            stack.messages.extend(buf)
            if len(stack.messages) >= FULL:
                full, stack = stack, _Stack()
                add(full)
    finally:  # what a bad message among these raises comes before an error that ended them
        add(stack)
