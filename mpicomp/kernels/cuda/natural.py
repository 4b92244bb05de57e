"""Natural compression."""

from __future__ import annotations

import numpy as np

from mpicomp.base.bits import packed_nbytes
from mpicomp.base.errors import not_finite
from mpicomp.kernels.cuda.launch import Array, Launching, flat, suffix
from mpicomp.kernels.definition.natural import code_too_large
from mpicomp.kernels.definition.philox import StreamName


class Natural(Launching):
    """The messages of ``compressors.Natural``."""

    def natural_pack(self, x: Array, bias: int, width: int, stream: StreamName) -> Array:
        """d sign bits, then d exponent codes: the message of ``compressors.Natural``.

        Raises ``DivergedError`` unless x is finite.
        """
        d = x.size
        buf = self._empty(packed_nbytes(d, 1) + packed_nbytes(d, width), np.uint8)
        name = f"natural_pack_{bias}_{suffix(x)}"
        self._dense(d, "natural", name, x, d, *flat(stream), buf, self.device.pointer)
        if self._noted()[0]:
            raise not_finite()
        return buf

    def natural_add(self, buf: Array, out: Array, bias: int, width: int, scale: float) -> None:
        """out += scale * what ``natural_pack`` coded."""
        d = out.size
        bad = self._check(buf[packed_nbytes(d, 1) :], d, width, 2 * bias)
        self._dense(d, "natural", f"natural_add_{bias}_{suffix(out)}", buf, out, d, float(scale), bad)
        _, code, _ = self._noted()
        if code:
            raise code_too_large(code, bias)
