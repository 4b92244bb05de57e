"""Levels in steps of many widths, as ``kernels.steps``, and their packing, as ``coding.widths``."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpicomp.coding.bits import expect_length
from mpicomp.coding.values import WIDTH
from mpicomp.kernels.cuda.launch import Array, flat, suffix
from mpicomp.kernels.cuda.norms import ROOT, Norms
from mpicomp.kernels.philox import StreamName
from mpicomp.kernels.reductions import no_norm


class Steps(Norms):
    """Symbols, and the norms of blocks."""

    def encode_norms(self, blocks: list[Array], values: str) -> tuple[Array, Array]:
        """As ``compressors.scale.encode_norms``."""
        w = WIDTH[values]
        heads = self._empty(w * len(blocks), np.uint8)
        scales = self._empty(2 * len(blocks), np.float64)
        for b, block in enumerate(blocks):
            self._scale(block, ROOT, heads[w * b : w * (b + 1)], scales[2 * b : 2 * (b + 1)])
        self._expect_fits(scales, values)
        return heads, scales[::2].copy()

    def decode_norms(self, buf: Array, count: int, values: str) -> Array:
        """As ``compressors.scale.decode_norms``."""
        expect_length(buf, count * WIDTH[values], f"{count} values of format {values!r}")
        norms = self._empty(count, np.float64)
        self._each(count, "steps", "read_norms", buf, count, WIDTH[values], norms, self.device.pointer)
        if self._noted()[0]:
            found = self.device.host(norms)
            raise no_norm(found[~((found >= 0) & (found < np.inf))][0])
        return norms

    def step_symbols(self, x: Array, norms: Array, r: Array, stream: StreamName) -> Array:
        """The symbols of r x / N, rounded without bias; N >= |x_j| in each block, r below 2^15."""
        out = self._empty(x.size, np.uint16)
        name = f"step_symbols_{suffix(x)}"
        self._dense(x.size, "steps", name, x, x.size, norms.size, norms, r, *flat(stream), out)
        return out

    def step_add(self, symbols: Array, out: Array, norms: Array, r: Array, scale: float) -> None:
        """out += scale N/r times the levels; a level of 0 adds 0, whatever N/r is."""
        name = f"step_add_{suffix(out)}"
        self._dense(out.size, "steps", name, symbols, out, out.size, norms.size, norms, r, float(scale))

    def pack_widths(self, symbols: Array, widths: Array, nbytes: int) -> Array:
        """Symbol i, below 2^widths[i], for each of them; ``nbytes`` in all."""
        words = self.xp.zeros(-(-nbytes // 4), dtype=np.uint32)
        args = (symbols, widths, widths.size, self._starts(widths), words)
        self._dense(widths.size, "steps", "pack_widths", *args)
        return words.view(np.uint8)[:nbytes]

    def unpack_widths(self, buf: Array, widths: Array, dtype: Any) -> Array:
        """The symbols in ``buf``, whose length is theirs; uint16 alone."""
        symbols = self._empty(widths.size, dtype)
        args = (buf, buf.size, widths, widths.size, self._starts(widths), symbols)
        self._dense(widths.size, "steps", "unpack_widths", *args)
        return symbols

    def _starts(self, widths: Array) -> Array:
        """The first bit of each 1024 symbols."""
        sums = self._empty(-(-widths.size // 1024), np.int64)
        self._dense(widths.size, "steps", "width_sums", widths, widths.size, sums)
        return self.xp.cumsum(sums) - sums
