"""Powers of two: a sign bit and an exponent code for each coordinate."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array, StreamName
from mpicomp.base.bits import Bytes, expect_length, pack, packed_nbytes, unpack
from mpicomp.base.errors import DivergedError, MessageError, not_finite
from mpicomp.kernels.definition.philox import words
from mpicomp.kernels.definition.rounding import powers_of_two


def natural_pack(x: Array, bias: int, width: int, stream: StreamName) -> Bytes:
    """Round |x_j| to a power of two, without bias; pack d sign bits, then d codes of ``width`` bits.

    The code is 0 for 0, else exponent + bias, at most 2 bias.

    Raises ``DivergedError`` unless x is finite, with all |x_j| below ``limit(bias)``.
    """
    if not np.isfinite(x).all() or np.abs(x).max(initial=0.0) >= np.float64(limit(bias)):
        raise beyond(x)
    exponents = powers_of_two(np.abs(x.astype(np.float64)), 1 - bias, words(stream, 0, x.size))
    codes = np.minimum(exponents + bias, 2 * bias).astype(np.uint64)
    return np.concatenate([np.packbits(x < 0, bitorder="little"), pack(codes, width)])


def natural_add(buf: Bytes, out: Array, bias: int, width: int, scale: float) -> None:
    """out += scale * y, y the signed powers of two in ``buf``.

    Raises ``MessageError``, and adds nothing, on a wrong length or a code that is too large.
    """
    d, split = out.size, packed_nbytes(out.size, 1)
    expect_length(buf, split + packed_nbytes(d, width), "signs and exponents")
    negative = np.unpackbits(buf[:split], count=d, bitorder="little").view(bool)
    codes = unpack(buf[split:], d, width).astype(np.int32)
    if codes.max(initial=0) > 2 * bias:
        raise code_too_large(codes.max(), bias)
    magnitude = np.where(codes > 0, np.ldexp(1.0, codes - bias) * scale, 0.0)
    out += np.where(negative, -magnitude, magnitude)


def limit(bias: int) -> float:
    """The least power of two that the format with this bias, f4 or f8, does not hold; infinity for f8."""
    return 2.0 ** (bias + 1) if bias < 1023 else np.inf


def beyond(x: Array) -> DivergedError:
    """The error of an encoder for which x is not finite or, in the format f4, too large."""
    if not np.isfinite(x).all():
        return not_finite()
    return DivergedError(
        f"a value of magnitude {np.abs(x).max():.3g} does not fit exponents of the format 'f4' (allowed: f4, "
        "f8)."
    )


def code_too_large(code: int, bias: int) -> MessageError:
    """The error of a code that stands for no power of two."""
    return MessageError(f"exponent code {code} where at most {2 * bias} is allowed.")
