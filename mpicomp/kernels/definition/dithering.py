"""A few levels of a norm: symbols 0 .. 2 s stand for the levels -s .. s."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array, StreamName
from mpicomp.base.bits import Bytes, pack, pack_trits, unpack, unpack_trits
from mpicomp.base.errors import MessageError
from mpicomp.kernels.definition.philox import words
from mpicomp.kernels.definition.rounding import lifted, powers_of_two, uniform_levels


def dither_pack(x: Array, scale: float, s: int, width: int, stream: StreamName) -> Bytes:
    """Round x_j / scale to multiples of 1/s, without bias, and pack symbols of ``width`` bits.

    ``scale`` is at least max |x_j|.
    """
    levels = uniform_levels(x, scale, s, words(stream, 0, x.size))
    return pack((levels + s).astype(np.uint64), width)


def dither_add(buf: Bytes, out: Array, s: int, width: int, step: float) -> None:
    """out += step * level, for all levels in ``buf``.

    Raises ``MessageError``, and adds nothing, on a wrong length or symbol.
    """
    out += _levels(unpack(buf, out.size, width), s) * step


def ternary_pack(x: Array, scale: float, stream: StreamName) -> Bytes:
    """Round x_j / scale to -1, 0 or 1, without bias, and pack trits; ``scale`` is at least max |x_j|."""
    levels = uniform_levels(x, scale, 1, words(stream, 0, x.size))
    return pack_trits((levels + 1).astype(np.uint8))


def ternary_add(buf: Bytes, out: Array, step: float) -> None:
    """out += step * level, for all levels in ``buf``.

    Raises ``MessageError``, and adds nothing, on a wrong length or byte.
    """
    out += _levels(unpack_trits(buf, out.size), 1) * step


def natural_dither_pack(x: Array, scale: float, s: int, width: int, stream: StreamName) -> Bytes:
    """Round |x_j| to 0 or scale 2^(l - s), l = 1, .., s, without bias, and pack symbols of ``width`` bits.

    ``scale`` is at least max |x_j|.
    """
    y, norm = lifted(x, scale)
    relative = np.multiply(np.abs(y), 1.0 / norm if norm else 0.0, dtype=np.float64)
    level = np.minimum(powers_of_two(relative, 1 - s, words(stream, 0, x.size)) + s, s)
    return pack((np.where(x < 0, -level, level) + s).astype(np.uint64), width)


def natural_dither_add(buf: Bytes, out: Array, s: int, width: int, step: float) -> None:
    """out += step 2^(|l| - s) sign l, for all levels l in ``buf``.

    Raises ``MessageError``, and adds nothing, on a wrong length or symbol.
    """
    out += natural_levels(_levels(unpack(buf, out.size, width), s), s) * step


def natural_levels(level: NDArray[np.float64], s: int) -> NDArray[np.float64]:
    """2^(|l| - s) sign l for the levels -s .. s."""
    magnitude = np.where(level == 0, 0.0, np.ldexp(1.0, np.abs(level).astype(np.int32) - s))
    return np.copysign(magnitude, level)


def _levels(symbols: NDArray[np.unsignedinteger], s: int) -> NDArray[np.float64]:
    if symbols.size and symbols.max() > 2 * s:
        raise symbol_too_large(symbols.max(), s)
    return symbols.astype(np.float64) - s


def symbol_too_large(symbol: int, s: int) -> MessageError:
    """The error of a symbol that stands for no level."""
    return MessageError(f"symbol {symbol} where {s} levels allow 0 to {2 * s}.")
