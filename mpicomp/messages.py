"""Records to bytes and back: the codec follows from a record's field types.

A record is a dataclass whose fields are ``Bytes`` (a compressor's message) or ``float``.  Floats come
first as 8 bytes each, then the messages one after the other.  The last message needs no length, it is
what is left; each earlier one is preceded by its length (LEB128, seven bits a byte).  So the usual
record, of a single message, is that message itself: not one byte more, and not a copy.
"""

from __future__ import annotations

import struct
from dataclasses import fields
from typing import TypeVar, get_type_hints

import numpy as np

from mpicomp.coding.bits import Bytes
from mpicomp.errors import MessageError

R = TypeVar("R")


def encode(record: object) -> Bytes:
    """The bytes of ``record``."""
    values = [getattr(record, f.name) for f in fields(record)]  # type: ignore[arg-type]
    numbers = [v for v in values if isinstance(v, float)]
    messages = [v for v in values if not isinstance(v, float)]
    parts = [_view(struct.pack(f"<{len(numbers)}d", *numbers))] if numbers else []
    for m in messages[:-1]:
        parts += [_view(_varint(len(m))), m]
    parts += messages[-1:]
    return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.empty(0, np.uint8)])


def decode(record: type[R], buf: Bytes) -> R:
    """The ``record`` in ``buf``; its messages are views.  Raises ``MessageError`` if there is none."""
    hints = get_type_hints(record, localns={"Bytes": Bytes})
    names = [f.name for f in fields(record)]  # type: ignore[arg-type]
    numbers = [name for name in names if hints[name] is float]
    messages = [name for name in names if hints[name] is not float]
    start = 8 * len(numbers)
    if len(buf) < start:
        raise MessageError(f"{record.__qualname__}: message truncated, {len(buf)} bytes.")
    values: dict[str, object] = dict(
        zip(numbers, np.frombuffer(buf, dtype="<f8", count=len(numbers)).tolist(), strict=True)
    )
    for name in messages[:-1]:
        length, start = _read_varint(buf, start)
        values[name] = buf[start : start + length]
        start += length
        if start > len(buf):
            raise MessageError(
                f"{record.__qualname__}: message truncated, {len(buf)} bytes where {start} begin."
            )
    if messages:
        values[messages[-1]] = buf[start:]
    elif start != len(buf):
        raise MessageError(
            f"{record.__qualname__}: message too long, {len(buf)} bytes where {start} are expected."
        )
    return record(**values)


def _view(b: bytes) -> Bytes:
    return np.frombuffer(b, dtype=np.uint8)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(buf: Bytes, start: int) -> tuple[int, int]:
    value = shift = 0
    for position in range(start, min(len(buf), start + 9)):
        value |= (int(buf[position]) & 0x7F) << shift
        if buf[position] < 0x80:
            return value, position + 1
        shift += 7
    raise MessageError("message truncated inside a length.")
