"""Block floats."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import StreamName
from mpicomp.base.bits import packed_nbytes
from mpicomp.base.errors import not_finite
from mpicomp.kernels.cuda.launch import Array, Launching, flat, suffix
from mpicomp.kernels.definition.block_floats import beyond, bias, blocks, too_small

_NONE = ((0, 0), (0, 0, 0))  # in the place of a stream where nothing is drawn


def block_floats(on: Launching, x: Array, bits: int, block: int, stream: StreamName | None) -> Array:
    """The message of ``compressors.BlockFloat``; with a stream, of ``compressors.BlockDithering``."""
    d, count = x.size, blocks(x.size, block)
    message = on.empty(count + packed_nbytes(d, bits), np.uint8)
    kind = "nearest" if stream is None else "dithered"
    args = (bits, block, bias(bits), *flat(_NONE if stream is None else stream), message)
    name = f"block_float_{kind}_{suffix(x)}"
    on.dense(d, "block_floats", name, x, d, *args, on.device.pointer)
    infinite, large, _ = on.noted()
    if infinite:
        raise not_finite()
    if large:
        raise beyond(float(on.device.host(on.xp.abs(x)).max()))
    return message


def add_block_floats(on: Launching, message: Array, out: Array, bits: int, block: int, scale: float) -> None:
    """out += scale * C(x), where ``message`` is from ``block_floats``."""
    d, bad = out.size, on.xp.zeros(1, dtype=np.uint32)
    args = (message, d, bits, block)
    on.dense(d, "block_floats", "block_float_check", *args, bad, on.device.pointer)
    name = f"block_float_add_{suffix(out)}"
    on.dense(d, "block_floats", name, message, out, d, bits, block, bias(bits), float(scale), bad)
    if on.noted()[0]:
        raise too_small(bits)
