"""Coded bitmaps, as ``codecs.bitmaps``."""

from __future__ import annotations

import numpy as np

from mpicomp.codecs import bitmaps
from mpicomp.kernels.cuda.launch import Array
from mpicomp.kernels.cuda.selection import Selection
from mpicomp.kernels.definition.ans import ROOM, RUN, table_nbytes, unended

_RUNS = 32  # threads a block: a run keeps its thread waiting, and there are few


class Bitmaps(Selection):
    """Bitmaps of d bits of which k are set, 0 < k <= d/2."""

    def encode_coded_bitmap(self, bitmap: Array, d: int, k: int) -> Array:
        """The bytes of ``codecs.bitmaps.encode``."""
        runs, head = -(-bitmap.size // RUN), table_nbytes(bitmap.size)
        words, counts = self._empty(runs * ROOM, np.uint32), self._empty(runs, np.int64)
        model = self.put(bitmaps.frequencies(d, k))
        args = (bitmap, bitmap.size, model, ROOM, words, counts)
        self.device.launch("ans", "ans_encode", -(-runs // _RUNS), _RUNS, *args)
        nbytes = bitmaps.nbytes(d, k)
        out = self.xp.zeros(-(-nbytes // 4) + 2, dtype=np.uint32)  # a last word may be zeros
        if head:
            out[: head // 4].view(np.uint16)[:runs] = counts
        ends = self.xp.cumsum(counts)
        self._each(32 * runs, "ans", "ans_gather", words, ROOM, counts, ends, runs, out[head // 4 :])
        return out.view(np.uint8)[:nbytes]

    def decode_coded_bitmap(self, buf: Array, d: int, k: int) -> Array:
        """The bitmap's bytes, whatever bits they set.  Raises ``MessageError`` if ``buf`` holds none."""
        bitmap = self._empty(-(-d // 8), np.uint8)
        runs, head = -(-bitmap.size // RUN), table_nbytes(bitmap.size)
        nbytes = buf.size - head
        if head:
            ends = self.xp.cumsum(buf[:head].copy().view(np.uint16)[:runs].astype(np.int64))
            if int(ends[-1]) > -(-nbytes // 4):
                raise unended()
        else:
            ends = self.xp.full(1, -(-nbytes // 4), dtype=np.int64)
        args = (buf[head:], nbytes, ends, self.put(bitmaps.frequencies(d, k)), bitmap, bitmap.size)
        self.device.launch("ans", "ans_decode", -(-runs // _RUNS), _RUNS, *args, self.device.pointer)
        if self._noted()[0]:
            raise unended()
        return bitmap
