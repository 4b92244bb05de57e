"""Norms, summed in the order of ``kernels.reductions``."""

from __future__ import annotations

import numpy as np

from mpicomp.errors import DivergedError
from mpicomp.kernels.cuda.launch import NULL, Array, Device, Launching, or_null, suffix

MEAN, ROOT, MAX = 1, 2, 3  # what sums.cu's `finish` makes of a sum


class Norms(Launching):
    """Norms as numbers, and at the head of a message."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._one = self._empty(1, np.float64)  # a norm of 1 where a caller brings the whole step
        self._one.fill(1.0)

    def norm(self, x: Array, p: str) -> float:
        """The 2-norm (p = "2") or max-norm ("inf") of x."""
        return self._exact(self._scale(x, MAX if p == "inf" else ROOT))

    def mean_magnitude(self, x: Array) -> float:
        """|x|_1 / d."""
        return self._exact(self._scale(x, MEAN))

    def _exact(self, scale: Array) -> float:
        exact = float(self.device.host(scale)[1])
        self._noted()
        return exact

    def _scale(self, x: Array, kind: int, head: Array | None = None) -> Array:
        """[what is in ``head``, the exact norm], without waiting; ``head``: the first bytes of a message."""
        largest = self._largest(x) if kind == MAX or x.dtype == np.float64 else None
        sums = None
        if kind != MAX:
            sums = self._empty(-(-x.size // 1024), np.float64)
            name = ("squares_" if kind == ROOT else "magnitudes_") + suffix(x)
            self._dense(x.size, "sums", name, x, x.size, or_null(largest), sums)
        return self._finish(sums, x.size, kind, largest, head)

    def _largest(self, x: Array) -> Array:
        largest = self.xp.zeros(1, dtype=np.uint64)
        self._dense(x.size, "sums", f"largest_{suffix(x)}", x, x.size, largest)
        return largest

    def _finish(self, sums: Array, d: int, kind: int, largest: Array | None, head: Array | None) -> Array:
        while sums is not None and sums.size > 2**15:
            upper = self._empty(-(-sums.size // 1024), np.float64)
            self._dense(sums.size, "sums", "magnitudes_f64", sums, sums.size, NULL, upper)
            sums = upper
        scale = self._empty(2, np.float64)
        self.device.launch(
            "sums", "finish", 1, 1024,
            or_null(sums), 0 if sums is None else sums.size, d, kind, or_null(largest),
            0 if head is None else head.size, or_null(head), scale, self.device.pointer,
        )  # fmt: skip
        return scale

    def _expect_fits(self, scale: Array, values: str) -> None:
        infinite, *_ = self._noted()
        if infinite:
            exact = float(self.device.host(scale)[1])
            raise DivergedError(
                f"a norm of {exact:.3g} does not fit the wire format {values!r} (allowed: f4, f8)."
            )
