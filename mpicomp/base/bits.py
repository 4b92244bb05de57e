"""Pack symbols of a fixed number of bits, and trits (0, 1, 2), into bytes without gaps.

Bit layout: symbol i of width w occupies bits i w, .., i w + w - 1 of the buffer, least significant bit
first.  Bit b of the buffer is bit ``b % 8`` of byte ``b // 8``.  The last byte is padded with zeros.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import MessageError

Bytes = NDArray[np.uint8]

_TRITS_PER_BYTE = 5  # 3^5 = 243 <= 256: 1.6 bits each, against log2(3) = 1.585
_POWERS_OF_3 = np.array([1, 3, 9, 27, 81], dtype=np.uint8)


def packed_nbytes(count: int, width: int) -> int:
    """The number of bytes that ``count`` symbols of ``width`` bits take."""
    return -(-count * width // 8)


def pack(symbols: NDArray[np.unsignedinteger], width: int) -> Bytes:
    """Pack symbols below 2^width (width 0 .. 64) into ``packed_nbytes(len(symbols), width)`` bytes."""
    size = _size(width)
    columns = np.ascontiguousarray(symbols, dtype=f"<u{size}").view(np.uint8).reshape(-1, size)
    if width == 8 * size:
        return columns.ravel()
    bits = np.unpackbits(columns, axis=1, count=width, bitorder="little")
    return np.packbits(bits.ravel(), bitorder="little")


def unpack(buf: Bytes, count: int, width: int) -> NDArray[np.unsignedinteger]:
    """The ``count`` symbols in ``buf``.  Raises ``MessageError`` if ``buf`` has another length."""
    expect_length(buf, packed_nbytes(count, width), "packed symbols")
    size = _size(width)
    if width == 8 * size:
        return buf.view(f"<u{size}")
    bits = np.unpackbits(buf, count=count * width, bitorder="little").reshape(count, width)
    symbols = np.zeros(count, dtype=f"<u{size}")
    for b in range(width):  # a pass for each bit is far quicker than packing each symbol's row
        symbols |= bits[:, b].astype(symbols.dtype) << b
    return symbols


def _size(width: int) -> int:
    """The size in bytes of the smallest unsigned integer type with at least ``width`` bits."""
    return 1 if width <= 8 else 2 if width <= 16 else 4 if width <= 32 else 8


def pack_trits(trits: NDArray[np.uint8]) -> Bytes:
    """Pack symbols 0, 1, 2 as base-3 digits, five in a byte, the first one least significant."""
    padded = np.zeros((-(-trits.size // _TRITS_PER_BYTE), _TRITS_PER_BYTE), dtype=np.uint8)
    padded.ravel()[: trits.size] = trits
    return (padded * _POWERS_OF_3).sum(axis=1, dtype=np.uint8)


def unpack_trits(buf: Bytes, count: int) -> NDArray[np.uint8]:
    """The ``count`` trits in ``buf``.  Raises ``MessageError`` on a wrong length or a byte above 242."""
    expect_length(buf, -(-count // _TRITS_PER_BYTE), "packed trits")
    check_trits(buf)
    return (buf[:, None] // _POWERS_OF_3 % 3).ravel()[:count]


def check_trits(buf: Bytes) -> None:
    """Raise ``MessageError`` if a byte is above 242, so that it is no packed trits."""
    if buf.size and buf.max() > 242:
        raise MessageError(f"byte {buf.max()} among packed trits; five trits make at most 242.")


def expect_length(buf: Bytes, expected: int, what: object) -> None:
    """Raise ``MessageError`` unless ``buf`` has ``expected`` bytes; ``what`` names it in the error."""
    if len(buf) != expected:
        kind = "truncated" if len(buf) < expected else "too long"
        raise MessageError(f"{what}: message {kind}, {len(buf)} bytes where {expected} are expected.")
