"""The header of a broadcast: the message's length and status and, if ranks may die, two checksums.

If a rank dies during a collective operation of Open MPI, another rank may be told of success and get bytes
that nobody sent.  Such bytes must not set a length, become an object or change an iterate.  So a header ends
with the CRC-32 of the message and then the header's own.  A rank that finds a wrong checksum asks MPI whether
a rank has died (see ``ulfm``).  Point-to-point messages need none: they arrive, or the operation fails.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.base.bits import Bytes

Header = NDArray[np.int64]


class GarbledError(Exception):
    """A broadcast delivered bytes that the server did not send."""


def write(message: Bytes | None, status: int, checked: bool) -> Header:
    """The server's header, int64, of 2 numbers or 4 if ``checked``; on other ranks zeros to receive it in."""
    if message is None:
        return np.zeros(4 if checked else 2, np.int64)
    numbers = [len(message), status]
    if checked:
        numbers.append(_checksum(message))
        numbers.append(crc32(np.array(numbers, np.int64).data))
    return np.array(numbers, np.int64)


def read(head: Header) -> tuple[int, int]:
    """The message's length in bytes, and the status.

    Raises ``GarbledError`` if the header's checksum is wrong.
    """
    length, status, *checksums = head.tolist()
    if checksums and crc32(head[:-1].data) != checksums[-1]:
        raise GarbledError("the header of a broadcast has come garbled, and no rank is known to have died")
    return length, status


def check(head: Header, message: Bytes) -> None:
    """Raise ``GarbledError`` if ``head`` has checksums and the message's CRC-32 is another.

    A header without checksums accepts every message.
    """
    if len(head) == 4 and head[2] != _checksum(message):
        raise GarbledError("a broadcast has come garbled, and no rank is known to have died")


def _checksum(message: Bytes) -> int:
    return crc32(kernels.to_host(message))
