"""Natural compression."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import StreamName
from mpicomp.base.bits import packed_nbytes
from mpicomp.base.formats import EXPONENT_BITS, exponent_bias
from mpicomp.kernels.cuda.launch import Array, Launching, flat, suffix
from mpicomp.kernels.definition.natural import beyond, code_too_large


def natural(on: Launching, x: Array, values: str, stream: StreamName) -> Array:
    """d sign bits, then d exponent codes: the message of ``compressors.Natural``.

    Raises ``DivergedError`` unless x is finite, and in the range of the format.
    """
    d, width, bias = x.size, EXPONENT_BITS[values], exponent_bias(values)
    buf = on.empty(packed_nbytes(d, 1) + packed_nbytes(d, width), np.uint8)
    name = f"natural_pack_{bias}_{suffix(x)}"
    on.dense(d, "natural", name, x, d, *flat(stream), buf, on.device.pointer)
    if on.noted()[0]:
        raise beyond(on.device.host(x))
    return buf


def add_natural(on: Launching, message: Array, out: Array, values: str, scale: float) -> None:
    """out += scale * C(x), where ``message`` is from ``natural``."""
    d, width, bias = out.size, EXPONENT_BITS[values], exponent_bias(values)
    bad = on.check(message[packed_nbytes(d, 1) :], d, width, 2 * bias)
    on.dense(d, "natural", f"natural_add_{bias}_{suffix(out)}", message, out, d, float(scale), bad)
    _, code, _ = on.noted()
    if code:
        raise code_too_large(code, bias)
