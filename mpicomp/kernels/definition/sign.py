"""One bit a coordinate: 1 for a negative one."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes, expect_length, packed_nbytes
from mpicomp.kernels.definition.reductions import mean_magnitude


def sign_pack(x: Array) -> tuple[float, Bytes]:
    """|x|_1 / d, which is not finite if an entry is not, and the bits."""
    return mean_magnitude(x), np.packbits(x < 0, bitorder="little")


def sign_add(buf: Bytes, out: Array, step: float) -> None:
    """out_j += -step where bit j is set, +step elsewhere.  ``MessageError`` on a wrong length."""
    expect_length(buf, packed_nbytes(out.size, 1), "sign bits")
    negative = np.unpackbits(buf, count=out.size, bitorder="little").view(bool)
    out += np.where(negative, -step, step)
