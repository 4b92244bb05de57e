"""Scaled sign."""

from __future__ import annotations

import numpy as np

from mpicomp.base.bits import packed_nbytes
from mpicomp.codecs.values import WIDTH
from mpicomp.kernels.cuda.launch import Array, or_null, suffix
from mpicomp.kernels.cuda.norms import MEAN, Norms


class Signs(Norms):
    """The messages of ``compressors.Sign``: one pass over a float32 vector, two over a float64 one."""

    def sign(self, x: Array, values: str) -> Array:
        """The message of ``compressors.Sign``."""
        w = WIDTH[values]
        message = self._empty(w + packed_nbytes(x.size, 1), np.uint8)
        largest = self._largest(x) if x.dtype == np.float64 else None
        sums = self._empty(-(-x.size // 1024), np.float64)
        self._dense(x.size, "sign", f"sign_pack_{suffix(x)}", x, x.size, or_null(largest), sums, message[w:])
        self._expect_fits(self._finish(sums, x.size, MEAN, largest, message[:w]), values)
        return message

    def add_sign(self, message: Array, out: Array, values: str, scale: float) -> None:
        """out += scale * what ``sign`` coded."""
        w = WIDTH[values]
        name, head, pointer = f"sign_add_{suffix(out)}", message[:w], self.device.pointer
        self._dense(out.size, "sign", name, message[w:], out, out.size, head, w, float(scale), pointer)
        self._expect_norm(head)
