"""Code the number of entries of a message that the receiver does not know, in as many bytes as d needs."""

from __future__ import annotations

import numpy as np

from mpicomp import kernels
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MessageError


def count_nbytes(d: int) -> int:
    """The number of bytes that code a number from 0 to d."""
    return -(-d.bit_length() // 8)


def encode_count(k: int, d: int) -> Bytes:
    """Code k, 0 <= k <= d, as ``count_nbytes(d)`` bytes, little-endian."""
    return np.frombuffer(k.to_bytes(count_nbytes(d), "little"), dtype=np.uint8)


def decode_count(buf: Bytes, d: int) -> int:
    """The number that ``buf`` starts with.  Raises ``MessageError`` if it exceeds d."""
    head = count_nbytes(d)
    k = int.from_bytes(kernels.to_host(buf[:head]).tobytes(), "little")
    if len(buf) < head or k > d:
        raise MessageError(f"a message of {len(buf)} bytes announces {k} entries of a vector in R^{d}.")
    return k
