"""Block floats: integers of 4 or 8 bits that share a power of two, block by block.

With ``bits`` bits the integers go from -T to T, T = 2^(bits - 1) - 1.  Entry j of a block is m_j 2^e.  The
code of e, one byte, is e + ``bias(bits)``.  The integers lie packed, in two's complement.
"""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array, StreamName
from mpicomp.base.bits import Bytes, expect_length, pack, packed_nbytes, unpack
from mpicomp.base.errors import DivergedError, MessageError, not_finite
from mpicomp.kernels.definition.philox import words


def block_float_pack(x: Array, bits: int, block: int, stream: StreamName | None) -> Bytes:
    """The codes of the blocks, then the integers of all entries.

    2^e is the least power of two with |x_j| <= T 2^e in the block, with code 0 at least.  x_j 2^-e is rounded
    to nearest, ties to even; with a ``stream``, to one of the two nearest integers, without bias.

    Raises ``DivergedError`` unless x is finite, and in the range of single precision.
    """
    if not np.isfinite(x).all():
        raise not_finite()
    y = np.zeros((blocks(x.size, block), block))
    y.ravel()[: x.size] = x
    fraction, exponent = np.frexp(np.abs(y).max(axis=1))  # the largest entry is fraction 2^exponent
    e = exponent - (bits - 1) + (fraction > largest(bits) / 2 ** (bits - 1))
    e = np.where(fraction > 0, np.maximum(e, -bias(bits)), -bias(bits))[:, None]
    if e.max() > 255 - bias(bits):
        raise beyond(float(np.abs(x).max()))
    if stream is None:
        m = np.rint(np.ldexp(y, -e))
    else:
        draws = np.zeros(y.size, dtype=np.uint64)
        draws[: x.size] = words(stream, 0, x.size)
        t = np.ceil(np.ldexp(np.abs(y), 32 - e)).astype(np.uint64)
        level = (t + (np.uint64(0xFFFFFFFF) - draws.reshape(y.shape))) >> np.uint64(32)
        m = np.copysign(level, y)
    symbols = m.astype(np.int64).ravel()[: x.size] & (2**bits - 1)
    codes = (e + bias(bits)).astype(np.uint8).ravel()
    return np.concatenate([codes, pack(symbols.astype(np.uint64), bits)])


def add_block_floats(buf: Bytes, out: Array, bits: int, block: int, scale: float) -> None:
    """out_j += scale m_j 2^e.

    Raises ``MessageError``, and adds nothing, on a wrong length or the integer -2^(bits - 1).
    """
    count = blocks(out.size, block)
    expect_length(buf, count + packed_nbytes(out.size, bits), "block floats")
    symbols = unpack(buf[count:], out.size, bits).astype(np.int32)
    m = symbols - 2**bits * (symbols >= 2 ** (bits - 1))
    if m.size and m.min() < -largest(bits):
        raise too_small(bits)
    steps = np.ldexp(1.0, buf[:count].astype(np.int32) - bias(bits)) * scale
    out += m * np.repeat(steps, block)[: out.size]


def blocks(d: int, block: int) -> int:
    """The number of blocks of d entries; the last one may be shorter."""
    return -(-d // block)


def largest(bits: int) -> int:
    """T, the largest integer of that many bits whose negative has as many."""
    return 2 ** (bits - 1) - 1


def bias(bits: int) -> int:
    """The difference between the code of an exponent and the exponent.

    The codes 0 to 255 then reach from below the smallest normal number of single precision to its largest.
    """
    return 125 + bits


def beyond(magnitude: float) -> DivergedError:
    """The error of an entry that is too large."""
    return DivergedError(
        f"a value of magnitude {magnitude:.3g} does not fit block floats, whose range is that of 'f4'."
    )


def too_small(bits: int) -> MessageError:
    """The error of the integer that no sender uses."""
    top = largest(bits)
    return MessageError(f"the integer {-top - 1} in block floats, where {bits} bits allow {-top} to {top}.")
