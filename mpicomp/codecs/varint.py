"""Code natural numbers of any size by LEB128: seven bits a byte, the lowest first."""

from __future__ import annotations

from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MessageError


def varint(value: int) -> bytes:
    """The bytes of ``value`` >= 0, lowest seven bits first; all but the last have their top bit set."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(buf: Bytes, start: int) -> tuple[int, int]:
    """Read the number at ``start``, below 2^63; return it and the position after it.

    Raises ``MessageError`` if there is none.
    """
    value = shift = 0
    for position in range(start, min(len(buf), start + 9)):
        value |= (int(buf[position]) & 0x7F) << shift
        if buf[position] < 0x80:
            return value, position + 1
        shift += 7
    raise MessageError("message truncated inside a length.")
