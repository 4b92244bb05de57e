"""Norms, summed in the order of ``kernels.definition.reductions``."""

from __future__ import annotations

import numpy as np

from mpicomp.base.errors import norm_beyond
from mpicomp.codecs.values import WIDTH
from mpicomp.kernels.cuda.launch import Array, Launching, or_null, suffix

MEAN, ROOT, MAX = 1, 2, 3  # what sums.cu's `finish` makes of a sum


class Norms(Launching):
    """The norm at the head of a message, or those of blocks."""

    def encode_norms(self, blocks: list[Array], values: str) -> tuple[Array, Array]:
        """As ``compressors.support.scale.encode_norms``."""
        w = WIDTH[values]
        heads = self._empty(w * len(blocks), np.uint8)
        places = (heads[w * b : w * (b + 1)] for b in range(len(blocks)))
        each = [self._scale(block, ROOT, head) for block, head in zip(blocks, places, strict=True)]
        scales = self.xp.concatenate(each)
        self._expect_fits(scales, values)
        return heads, scales[::2].copy()

    def _scale(self, x: Array, kind: int, head: Array) -> Array:
        """[what is in ``head``, the exact norm], without waiting; ``head``: the first bytes of a message.

        ``kind`` is ROOT, of the sum of squares, or MAX.
        """
        largest = self._largest(x) if kind == MAX or x.dtype == np.float64 else None
        sums = None
        if kind == ROOT:
            sums = self._empty(-(-x.size // 1024), np.float64)
            self._dense(x.size, "sums", f"squares_{suffix(x)}", x, x.size, or_null(largest), sums)
        return self._finish(sums, x.size, kind, largest, head)

    def _largest(self, x: Array) -> Array:
        largest = self.xp.zeros(1, dtype=np.uint64)
        self._dense(x.size, "sums", f"largest_{suffix(x)}", x, x.size, largest)
        return largest

    def _finish(self, sums: Array, d: int, kind: int, largest: Array | None, head: Array) -> Array:
        while sums is not None and sums.size > 2**15:
            upper = self._empty(-(-sums.size // 1024), np.float64)
            self._dense(sums.size, "sums", "sums_f64", sums, sums.size, upper)
            sums = upper
        scale = self._empty(2, np.float64)
        self.device.launch(
            "sums", "finish", 1, 1024,
            or_null(sums), 0 if sums is None else sums.size, d, kind, or_null(largest),
            head.size, head, scale, self.device.pointer,
        )  # fmt: skip
        return scale

    def _expect_fits(self, scales: Array, values: str) -> None:
        """Wait; raise ``DivergedError`` if one of these norms is infinite in its format."""
        infinite, *_ = self._noted()
        if infinite:
            exact = self.device.host(scales)[1::2]
            raise norm_beyond(float(exact[~(exact <= np.finfo(values).max)][0]), values)
