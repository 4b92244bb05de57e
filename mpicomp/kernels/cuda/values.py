"""Numbers at chosen coordinates, and on the wire."""

from __future__ import annotations

import numpy as np

from mpicomp.base.bits import expect_length
from mpicomp.base.errors import DivergedError, not_finite
from mpicomp.codecs.values import WIDTH
from mpicomp.kernels.cuda.launch import Array, Launching, suffix

_DECODED = {"f8": np.float64, "f4": np.float32, "f2": np.float32, "bf16": np.float32}


class Values(Launching):
    """Gathering, adding, coding."""

    def gather(self, x: Array, indices: Array) -> Array:
        """x[indices]."""
        out = self._empty(indices.size, x.dtype)
        self._each(out.size, "sparse", f"gather_{suffix(x)}", x, indices, out.size, out)
        return out

    def scatter_add(self, out: Array, indices: Array, values: Array, scale: float) -> None:
        """out[indices] += scale * values; no index comes twice."""
        name = f"scatter_add_{suffix(out)}_{suffix(values)}"
        self._each(indices.size, "sparse", name, out, indices, values, indices.size, float(scale))

    def expit(self, x: Array) -> Array:
        """1/(1 + exp(-x)), elementwise."""
        return self.device.expit(x)

    def add_scaled(self, out: Array, x: Array, scale: float) -> None:
        """out += scale * x."""
        name = f"add_scaled_{suffix(out)}_{suffix(x)}"
        self._dense(out.size, "sparse", name, out, x, out.size, float(scale))

    def promoted(self, x: Array) -> Array:
        """x in float64; CuPy's own conversion would make subnormal float32 0."""
        if x.dtype == np.float64:
            return x
        out = self._empty(x.size, np.float64)
        self._each(x.size, "sparse", "promote", x, x.size, out)
        return out

    def are_singles(self, x: Array) -> bool:
        """Whether every entry is a float32."""
        if x.dtype == np.float64:
            self._each(x.size, "sparse", "expect_singles", x, x.size, self.device.pointer)
        return not self._noted()[0]

    def encode_values(self, x: Array, values: str) -> Array:
        """x in the wire format ``values``.  Raises ``DivergedError`` where one overflows or is not finite."""
        out = self._empty(x.size * WIDTH[values], np.uint8)
        name = f"encode_{values}_{suffix(x)}"
        self._dense(x.size, "sparse", name, x, x.size, out, self.device.pointer)
        if self._noted()[0]:
            if not self.xp.isfinite(x).all():
                raise not_finite()
            raise DivergedError(
                f"a value of magnitude {float(abs(x).max()):.3g} does not fit the wire format {values!r} "
                f"(allowed: {', '.join(WIDTH)})."
            )
        return out

    def decode_values(self, buf: Array, count: int, values: str) -> Array:
        """The ``count`` numbers in ``buf``: float64 from f8, else float32."""
        expect_length(buf, count * WIDTH[values], f"{count} values of format {values!r}")
        out = self._empty(count, _DECODED[values])
        self._each(count, "sparse", f"decode_{values}", buf, count, out)
        return out

    def wire_add(self, buf: Array, out: Array, values: str, scale: float) -> None:
        """out += scale times the numbers in ``buf``, whose length is theirs."""
        name = f"wire_add_{values}_{suffix(out)}"
        self._dense(out.size, "sparse", name, buf, out, out.size, float(scale))
