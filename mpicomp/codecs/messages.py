"""Encode records as bytes, and decode them; the format follows from the types of a record's fields.

A record is a dataclass whose fields are ``Bytes`` (a compressor's message) and numbers: ``float``, ``Short``
and ``Natural``.  The numbers come first, in order: the 8 bytes of a float, little-endian, the last 2 of them
of a ``Short``, and a ``Natural`` in LEB128, seven bits a byte.  Then come the messages.  Each but the last is
preceded by its length, in LEB128; the last one extends to the end.  So the usual record, a single message, is
coded as that message itself: without an extra byte, and without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, NewType, TypeVar, get_type_hints

import numpy as np

from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.codecs.varint import read_varint, varint
from mpicomp.kernels import join

R = TypeVar("R")
Short = NewType("Short", float)  # one that ``short`` has rounded: the 48 bits that are not sent are zeros
Natural = NewType("Natural", int)  # below 2^63
_NUMBERS = float, Short, Natural


def short(x: float) -> Short:
    """The nearest ``Short`` to ``x``, which has 11 bits of exponent and 4 of fraction.

    It is within 1/32 of ``x``, unless that is subnormal.  Of two as near it is the larger in magnitude.
    Infinities and NaN stay; from 1.77e308 on it is infinity.
    """
    if not isfinite(x):
        return Short(x)
    (bits,) = struct.unpack("<Q", struct.pack("<d", x))
    return Short(struct.unpack("<d", struct.pack("<Q", bits + (1 << 47) >> 48 << 48))[0])


def encode(record: object) -> Bytes:
    """The bytes of ``record``.

    Raises ``ConfigError`` if ``record`` is no record, or if a message in it is no contiguous uint8 vector:
    the ledger counts bytes by its length.
    """
    numbers, messages = _layout(type(record))
    if not numbers and len(messages) == 1:  # the message itself: the short way, for rounds have many
        return _expect_bytes(record, messages[0])
    coded = (_coded(getattr(record, name), kind) for name, kind in numbers.items())
    parts = [_view(b"".join(coded))] if numbers else []
    for name in messages[:-1]:
        message = _expect_bytes(record, name)
        parts += [_view(varint(len(message))), message]
    parts += [_expect_bytes(record, name) for name in messages[-1:]]
    return parts[0] if len(parts) == 1 else join(*parts)


def decode(record: type[R], buf: Bytes) -> R:
    """Decode a record of type ``record`` from ``buf``; its messages are views of ``buf``.

    Raises ``MessageError`` if ``buf`` is too short or too long.
    """
    numbers, messages = _layout(record)
    if not numbers and len(messages) == 1:  # buf is the message: the short way, for servers take many
        return record(**{messages[0]: buf})
    values: dict[str, object] = {}
    start = 0
    for name, kind in numbers.items():
        values[name], start = _read(buf, start, kind)
        if start > len(buf):
            raise MessageError(f"{record.__qualname__}: message truncated after {len(buf)} bytes.")
    for name in messages[:-1]:
        length, start = read_varint(buf, start)
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


def _coded(number: Any, kind: Any) -> bytes:
    """The bytes of a number of a record."""
    if kind is Natural:
        return varint(number)
    double = struct.pack("<d", number)
    return double if kind is float else double[-2:]


def _read(buf: Bytes, start: int, kind: Any) -> tuple[float, int]:
    """The number at ``start`` and the position after it, which is beyond ``buf`` if that ends too early."""
    if kind is Natural:
        return read_varint(buf, start)
    end = start + (8 if kind is float else 2)
    return struct.unpack("<d", buf[start:end].tobytes().rjust(8, b"\0"))[0], end


def _layout_of(record: type) -> tuple[dict[str, Any], list[str]]:
    """The types of a record type's numbers by name, and the names of its messages, both in field order.

    Raises ``ConfigError`` if the type is no record.
    """
    hints = get_type_hints(record) if is_dataclass(record) else {}
    names = [f.name for f in fields(record)] if is_dataclass(record) else []
    if not names or any(hints[n] not in (*_NUMBERS, Bytes) for n in names):
        raise ConfigError(
            f"a {record.__qualname__} was to be sent; what is sent is a record, a dataclass whose fields are "
            "messages (Bytes) and numbers (float, Short, Natural)."
        )
    numbers = {n: hints[n] for n in names if hints[n] != Bytes}
    return numbers, [n for n in names if n not in numbers]


_layout: Callable[[type], tuple[dict[str, Any], list[str]]] = lru_cache(_layout_of)


def _expect_bytes(record: object, name: str) -> Bytes:
    """The message in field ``name``.  Raises ``ConfigError`` if it is no contiguous uint8 vector."""
    m: Any = getattr(record, name)
    if getattr(m, "dtype", None) != np.uint8 or m.ndim != 1 or not m.flags.c_contiguous:
        shape = f" of shape {m.shape} and type {m.dtype}" if hasattr(m, "dtype") else ""
        raise ConfigError(
            f"{type(record).__qualname__}.{name} is {type(m).__name__}{shape}; a message is what compress "
            "returns, a contiguous vector of uint8."
        )
    return m


def _view(b: bytes) -> Bytes:
    return np.frombuffer(b, dtype=np.uint8)
