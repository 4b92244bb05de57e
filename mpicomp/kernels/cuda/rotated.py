"""Rotated quantisers."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import StreamName
from mpicomp.base.bits import packed_nbytes
from mpicomp.kernels.cuda.launch import THREADS, Array, Launching, flat, suffix
from mpicomp.kernels.definition.rotated import LEVELS, beyond, no_scale, padded, rotations


def rotated(on: Launching, x: Array, bits: int, block: int, least: bool, stream: StreamName) -> Array:
    """The message of ``compressors.EDEN``: the scale of the ``least`` error, or of the inner product."""
    d, count = x.size, rotations(x.size, block)
    message = on.empty(4 * count + packed_nbytes(padded(d, block), bits), np.uint8)
    name, levels = f"rotated_pack_{suffix(x)}", on.put(LEVELS[bits])
    args = (bits, block, int(least), *flat(stream), levels, message)
    on.device.launch("rotated", name, count, THREADS, x, d, *args, on.device.pointer)
    if on.noted()[0]:
        raise beyond(on.device.host(x))
    return message


def add_rotated(
    on: Launching, message: Array, out: Array, bits: int, block: int, scale: float, stream: StreamName
) -> None:
    """out += scale * what ``rotated`` coded."""
    d, count, bad = out.size, rotations(out.size, block), on.xp.zeros(1, dtype=np.uint32)
    on.each(count, "rotated", "rotated_check", message, count, bad, on.device.pointer)
    name, levels = f"rotated_add_{suffix(out)}", on.put(LEVELS[bits])
    args = (bits, block, *flat(stream), levels, float(scale), bad)
    on.device.launch("rotated", name, count, THREADS, message, out, d, *args)
    if on.noted()[0]:
        raise no_scale(on.device.host(message[: 4 * count]).view("<f4"))
