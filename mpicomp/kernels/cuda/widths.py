"""Symbols of different widths, as ``kernels.definition.widths``."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpicomp.kernels.cuda.launch import Array, Launching


class Widths(Launching):
    """Packing, uint16 alone."""

    def pack_widths(self, symbols: Array, widths: Array, nbytes: int) -> Array:
        """Symbol i, below 2^widths[i], for each of them; ``nbytes`` in all."""
        words = self.xp.zeros(-(-nbytes // 4), dtype=np.uint32)
        args = (symbols, widths, widths.size, self._starts(widths), words)
        self._dense(widths.size, "widths", "pack_widths", *args)
        return words.view(np.uint8)[:nbytes]

    def unpack_widths(self, buf: Array, widths: Array, dtype: Any) -> Array:
        """The symbols in ``buf``, whose length is theirs."""
        symbols = self._empty(widths.size, dtype)
        args = (buf, buf.size, widths, widths.size, self._starts(widths), symbols)
        self._dense(widths.size, "widths", "unpack_widths", *args)
        return symbols

    def _starts(self, widths: Array) -> Array:
        """The first bit of each 1024 symbols."""
        sums = self._empty(-(-widths.size // 1024), np.int64)
        self._dense(widths.size, "widths", "width_sums", widths, widths.size, sums)
        return self.xp.cumsum(sums) - sums
