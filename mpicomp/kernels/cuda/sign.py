"""Scaled sign."""

from __future__ import annotations

import numpy as np

from mpicomp.base.bits import packed_nbytes
from mpicomp.base.formats import WIDTH
from mpicomp.kernels.cuda import norms
from mpicomp.kernels.cuda.launch import Array, Launching, or_null, suffix
from mpicomp.kernels.cuda.norms import MEAN


def sign(on: Launching, x: Array, values: str) -> Array:
    """The message of ``compressors.Sign``."""
    w = WIDTH[values]
    message = on.empty(w + packed_nbytes(x.size, 1), np.uint8)
    largest = norms.largest_of(on, x) if x.dtype == np.float64 else None
    sums = on.empty(-(-x.size // 1024), np.float64)
    on.dense(x.size, "sign", f"sign_pack_{suffix(x)}", x, x.size, or_null(largest), sums, message[w:])
    norms.expect_fits(on, norms.finish_sum(on, sums, x.size, MEAN, largest, message[:w]), values)
    return message


def add_sign(on: Launching, message: Array, out: Array, values: str, scale: float) -> None:
    """out += scale * C(x), where ``message`` is from ``sign``."""
    w = WIDTH[values]
    name, head, pointer = f"sign_add_{suffix(out)}", message[:w], on.device.pointer
    on.dense(out.size, "sign", name, message[w:], out, out.size, head, w, float(scale), pointer)
    on.expect_norm(head)
