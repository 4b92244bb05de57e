"""Scaled sign."""

from __future__ import annotations

import numpy as np

from mpicomp.coding.bits import expect_length, packed_nbytes
from mpicomp.coding.values import WIDTH
from mpicomp.kernels.cuda.launch import Array, or_null, suffix
from mpicomp.kernels.cuda.norms import MEAN, Norms


class Signs(Norms):
    """Signs alone, and the messages of ``compressors.Sign``."""

    def sign_pack(self, x: Array) -> tuple[float, Array]:
        """|x|_1 / d, and one bit a coordinate, 1 where it is below 0: one pass over a float32 x."""
        bits = self._empty(packed_nbytes(x.size, 1), np.uint8)
        return self._exact(self._pack_signs(x, bits, None)), bits

    def sign_add(self, buf: Array, out: Array, step: float) -> None:
        """out += -step where the bit is set, +step elsewhere."""
        self._add_signs(buf, out, self._one.view(np.uint8), step)

    def sign(self, x: Array, values: str) -> Array:
        """The message of ``compressors.Sign``."""
        w = WIDTH[values]
        message = self._empty(w + packed_nbytes(x.size, 1), np.uint8)
        self._expect_fits(self._pack_signs(x, message[w:], message[:w]), values)
        return message

    def _pack_signs(self, x: Array, bits: Array, head: Array | None) -> Array:
        largest = self._largest(x) if x.dtype == np.float64 else None
        sums = self._empty(-(-x.size // 1024), np.float64)
        self._dense(x.size, "sign", f"sign_pack_{suffix(x)}", x, x.size, or_null(largest), sums, bits)
        return self._finish(sums, x.size, MEAN, largest, head)

    def add_sign(self, message: Array, out: Array, values: str, scale: float) -> None:
        """out += scale * what ``sign`` coded."""
        w = WIDTH[values]
        expect_length(message, w + packed_nbytes(out.size, 1), "signs")
        self._add_signs(message[w:], out, message[:w], scale)
        self._expect_norm(message[:w])

    def _add_signs(self, bits: Array, out: Array, head: Array, factor: float) -> None:
        name, pointer = f"sign_add_{suffix(out)}", self.device.pointer
        self._dense(out.size, "sign", name, bits, out, out.size, head, head.size, float(factor), pointer)
