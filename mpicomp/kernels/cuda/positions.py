"""Index codes, as ``codecs.indices``."""

from __future__ import annotations

import numpy as np

from mpicomp.base.bits import expect_length, packed_nbytes
from mpicomp.kernels.cuda import bitmaps, selection
from mpicomp.kernels.cuda.launch import Array, Launching, or_null
from mpicomp.kernels.cuda.selection import words_of
from mpicomp.kernels.definition.positions import refused
from mpicomp.kernels.index_layouts import BITMAP, CODED, RAW, index_nbytes, layout


def encode_indices(on: Launching, indices: Array, d: int) -> Array:
    """Code strictly increasing ``indices`` below d."""
    out = on.empty(index_nbytes(d, indices.size), np.uint8)
    if 2 * indices.size > d:
        indices = _complement(on, indices, d)
    k = indices.size
    if k == 0:
        return out
    form, _ = layout(d, k)
    if form == CODED:
        return bitmaps.encode_coded_bitmap(on, _marks(on, indices, BITMAP, d), d, k)
    width = _symbol_width(form, d)
    split = packed_nbytes(k, width)
    on.each(split, "indices", "pack_lower", indices, k, width, out, split)
    if form != RAW:
        out[split:] = _marks(on, indices, form, 8 * (out.size - split))
    return out


def _marks(on: Launching, indices: Array, form: int, nbits: int) -> Array:
    """The bytes of the layout's bitmap."""
    words = on.xp.zeros(-(-nbits // 32), dtype=np.uint32)
    on.each(indices.size, "indices", "set_upper", indices, indices.size, form, words)
    return words.view(np.uint8)[: -(-nbits // 8)]


def decode_indices(on: Launching, buf: Array, d: int, k: int) -> Array:
    """The k increasing indices below d in ``buf``.  Raises ``MessageError`` if it holds no such set."""
    expect_length(buf, index_nbytes(d, k), f"{k} of {d} indices")
    j = min(k, d - k)
    indices = _decode_indices(on, buf, d, j) if j else on.empty(0, np.int64)
    return _complement(on, indices, d) if 2 * k > d else indices


def _decode_indices(on: Launching, buf: Array, d: int, k: int) -> Array:
    form, _ = layout(d, k)
    if form == CODED:
        form, buf = BITMAP, bitmaps.decode_coded_bitmap(on, buf, d, k)
    width = _symbol_width(form, d)
    split = packed_nbytes(k, width)
    upper = None
    if form != RAW:
        nbits = d if form == BITMAP else k + ((d - 1) >> form)
        marks = on.empty(words_of(nbits), np.uint32)
        on.each(marks.size, "selection", "import_bits", buf[split:], nbits, marks, marks.size)
        upper = selection.positions_of(on, marks)
        if upper.size != k:
            raise refused(d, k)
        if form == BITMAP:
            return upper
    out = on.empty(k, np.int64)
    lower = (or_null(upper), buf, split)
    on.each(k, "indices", "join", *lower, k, d, form, width, out, on.device.pointer)
    if on.noted()[0]:
        raise refused(d, k)
    return out


def _complement(on: Launching, indices: Array, d: int) -> Array:
    marks = on.xp.zeros(words_of(d), dtype=np.uint32)
    on.each(indices.size, "indices", "set_upper", indices, indices.size, BITMAP, marks)
    on.each(marks.size, "selection", "invert", marks, marks.size, d)
    return selection.positions_of(on, marks)


def _symbol_width(form: int, d: int) -> int:
    """Bits of each index that are packed as a symbol."""
    return (d - 1).bit_length() if form == RAW else max(form, 0)
