"""Broadcast the workers' messages themselves where they are shorter than the message of their mean.

Every rank then adds them in worker order, as the server did, so it has the same mean, bit for bit.

==========  =============================  ==========================================================
bytes       field                          note
==========  =============================  ==========================================================
1           8 or 9                         layouts that the messages of ``Lossless`` do not have
..          lengths, LEB128                layout 9 alone: of all messages but the last
..          messages                       of the round's senders, in their order; with 8 equally long
==========  =============================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MessageError
from mpicomp.codecs.varint import read_varint, varint
from mpicomp.compressors.base import Sum
from mpicomp.kernels import join
from mpicomp.keys import Key
from mpicomp.methods.base import Accumulator, Message

EQUAL, MIXED = 8, 9


class Forwarding(Accumulator):
    """The server's step of a round whose broadcast is the mean of the messages, or the messages.

    total   adds the messages
    encode  makes the message of the mean
    limit   bytes that the message of the mean never exceeds: no more than these are kept of the messages
    """

    def __init__(self, total: Sum, encode: Callable[[Array], Bytes], limit: int) -> None:
        self._total, self._encode, self._limit = total, encode, limit
        self._kept: list[Bytes] | None = []  # None once they exceed the limit
        self._size = 0

    def take(self, key: Key, up: Message) -> None:
        assert key.worker is not None
        self._total.take(key.worker, up.m)
        self._size += len(up.m)
        if self._size > self._limit:
            self._kept = None
        if self._kept is not None:
            self._kept.append(up.m.copy())

    def flush(self) -> None:
        self._total.flush()

    def close(self) -> Message:
        mean = self._encode(self._total.close())
        forwarded = joined(self._kept) if self._kept else mean
        return Message(forwarded if len(forwarded) < len(mean) else mean)


def joined(messages: list[Bytes]) -> Bytes:
    """The broadcast that consists of these messages, at least one."""
    if len({len(m) for m in messages}) == 1:
        return join(np.array([EQUAL], np.uint8), *messages)
    lengths = b"".join(varint(len(m)) for m in messages[:-1])
    return join(np.frombuffer(bytes([MIXED]) + lengths, np.uint8), *messages)


def is_forwarded(broadcast: Bytes) -> bool:
    """Whether ``broadcast`` consists of messages, and is not the message of their mean."""
    return len(broadcast) > 0 and int(broadcast[0]) in (EQUAL, MIXED)


def split(broadcast: Bytes, count: int) -> list[Bytes]:
    """The ``count`` messages in ``broadcast``, which ``is_forwarded``.

    Raises ``MessageError`` if it cannot hold so many.  The last message is what remains; its compressor
    refuses a wrong length.
    """
    if int(broadcast[0]) == EQUAL:
        size, rest = divmod(len(broadcast) - 1, count)
        if rest:
            raise MessageError(
                f"a broadcast of {len(broadcast)} bytes forwards {count} messages of one length; allowed: 1 "
                f"byte and a multiple of {count}."
            )
        start, lengths = 1, [size] * count
    else:
        start, lengths = 1, []
        for _ in range(count - 1):
            length, start = read_varint(broadcast, start)
            lengths.append(length)
        lengths.append(len(broadcast) - start - sum(lengths))
        if lengths[-1] < 0:
            raise MessageError(
                f"a broadcast of {len(broadcast)} bytes forwards {count} messages, and all but the last have "
                f"{sum(lengths[:-1])}: it is truncated."
            )
    stops = start + np.cumsum(lengths)
    return [broadcast[stop - length : stop] for stop, length in zip(stops, lengths, strict=True)]
