"""Index codes, as ``codecs.indices``."""

from __future__ import annotations

import numpy as np

from mpicomp.base.bits import expect_length, packed_nbytes
from mpicomp.codecs.indices import _BITMAP, _CODED, _RAW, _layout, index_nbytes
from mpicomp.kernels.cuda.bitmaps import Bitmaps
from mpicomp.kernels.cuda.launch import Array, or_null
from mpicomp.kernels.cuda.selection import words_of
from mpicomp.kernels.definition.positions import refused


class Positions(Bitmaps):
    """Sets of positions to bytes and back."""

    def encode_indices(self, indices: Array, d: int) -> Array:
        """The bytes of ``codecs.indices.encode_indices``."""
        out = self._empty(index_nbytes(d, indices.size), np.uint8)
        if 2 * indices.size > d:
            indices = self._complement(indices, d)
        k = indices.size
        if k == 0:
            return out
        layout, _ = _layout(d, k)
        if layout == _CODED:
            return self.encode_coded_bitmap(self._marks(indices, _BITMAP, d), d, k)
        width = _symbol_width(layout, d)
        split = packed_nbytes(k, width)
        self._each(split, "indices", "pack_lower", indices, k, width, out, split)
        if layout != _RAW:
            out[split:] = self._marks(indices, layout, 8 * (out.size - split))
        return out

    def _marks(self, indices: Array, layout: int, nbits: int) -> Array:
        """The bytes of the layout's bitmap."""
        words = self.xp.zeros(-(-nbits // 32), dtype=np.uint32)
        self._each(indices.size, "indices", "set_upper", indices, indices.size, layout, words)
        return words.view(np.uint8)[: -(-nbits // 8)]

    def decode_indices(self, buf: Array, d: int, k: int) -> Array:
        """The k increasing indices below d in ``buf``.  Raises ``MessageError`` if it holds no such set."""
        expect_length(buf, index_nbytes(d, k), f"{k} of {d} indices")
        j = min(k, d - k)
        indices = self._decode_indices(buf, d, j) if j else self._empty(0, np.int64)
        return self._complement(indices, d) if 2 * k > d else indices

    def _decode_indices(self, buf: Array, d: int, k: int) -> Array:
        layout, _ = _layout(d, k)
        if layout == _CODED:
            layout, buf = _BITMAP, self.decode_coded_bitmap(buf, d, k)
        width = _symbol_width(layout, d)
        split = packed_nbytes(k, width)
        upper = None
        if layout != _RAW:
            nbits = d if layout == _BITMAP else k + ((d - 1) >> layout)
            marks = self._empty(words_of(nbits), np.uint32)
            self._each(marks.size, "selection", "import_bits", buf[split:], nbits, marks, marks.size)
            upper = self._positions(marks, k)
            if upper.size != k:
                raise refused(d, k)
            if layout == _BITMAP:
                return upper
        out = self._empty(k, np.int64)
        lower = (or_null(upper), buf, split)
        self._each(k, "indices", "join", *lower, k, d, layout, width, out, self.device.pointer)
        if self._noted()[0]:
            raise refused(d, k)
        return out

    def _complement(self, indices: Array, d: int) -> Array:
        marks = self.xp.zeros(words_of(d), dtype=np.uint32)
        self._each(indices.size, "indices", "set_upper", indices, indices.size, _BITMAP, marks)
        self._each(marks.size, "selection", "invert", marks, marks.size, d)
        return self._positions(marks, None)


def _symbol_width(layout: int, d: int) -> int:
    """Bits of each index that are packed as a symbol."""
    return (d - 1).bit_length() if layout == _RAW else max(layout, 0)
