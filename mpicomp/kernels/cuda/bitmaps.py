"""Bitmaps of d bits of which k are set, 0 < k <= d/2, coded: see ``coded_bitmaps``."""

from __future__ import annotations

import numpy as np

from mpicomp.kernels import coded_bitmaps
from mpicomp.kernels.cuda.launch import Array, Launching
from mpicomp.kernels.definition.ans import ROOM, RUN, table_nbytes, unended

_RUNS = 32  # threads a block: a run keeps its thread waiting, and there are few


def encode_coded_bitmap(on: Launching, bitmap: Array, d: int, k: int) -> Array:
    """The bitmap's bytes coded, in ``coded_bitmaps.nbytes(d, k)`` bytes."""
    runs, head = -(-bitmap.size // RUN), table_nbytes(bitmap.size)
    words, counts = on.empty(runs * ROOM, np.uint32), on.empty(runs, np.int64)
    model = on.put(coded_bitmaps.frequencies(d, k))
    args = (bitmap, bitmap.size, model, ROOM, words, counts)
    on.device.launch("ans", "ans_encode", -(-runs // _RUNS), _RUNS, *args)
    nbytes = coded_bitmaps.nbytes(d, k)
    out = on.xp.zeros(-(-nbytes // 4) + 2, dtype=np.uint32)  # a last word may be zeros
    if head:
        out[: head // 4].view(np.uint16)[:runs] = counts
    ends = on.xp.cumsum(counts)
    on.each(32 * runs, "ans", "ans_gather", words, ROOM, counts, ends, runs, out[head // 4 :])
    return out.view(np.uint8)[:nbytes]


def decode_coded_bitmap(on: Launching, buf: Array, d: int, k: int) -> Array:
    """The bitmap's bytes, any number of bits set.  Raises ``MessageError`` if ``buf`` holds no bitmap."""
    bitmap = on.empty(-(-d // 8), np.uint8)
    runs, head = -(-bitmap.size // RUN), table_nbytes(bitmap.size)
    nbytes = buf.size - head
    if head:
        ends = on.xp.cumsum(buf[:head].copy().view(np.uint16)[:runs].astype(np.int64))
        if int(ends[-1]) > -(-nbytes // 4):
            raise unended()
    else:
        ends = on.xp.full(1, -(-nbytes // 4), dtype=np.int64)
    args = (buf[head:], nbytes, ends, on.put(coded_bitmaps.frequencies(d, k)), bitmap, bitmap.size)
    on.device.launch("ans", "ans_decode", -(-runs // _RUNS), _RUNS, *args, on.device.pointer)
    if on.noted()[0]:
        raise unended()
    return bitmap
