"""Symbols of different widths, as ``kernels.definition.widths``."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpicomp.kernels.cuda.launch import Array, Launching


def pack_widths(on: Launching, symbols: Array, widths: Array, nbytes: int) -> Array:
    """Symbol i, below 2^widths[i], for each of them; ``nbytes`` in all."""
    words = on.xp.zeros(-(-nbytes // 4), dtype=np.uint32)
    args = (symbols, widths, widths.size, _starts(on, widths), words)
    on.dense(widths.size, "widths", "pack_widths", *args)
    return words.view(np.uint8)[:nbytes]


def unpack_widths(on: Launching, buf: Array, widths: Array, dtype: Any) -> Array:
    """The symbols in ``buf``, whose length is theirs."""
    symbols = on.empty(widths.size, dtype)
    args = (buf, buf.size, widths, widths.size, _starts(on, widths), symbols)
    on.dense(widths.size, "widths", "unpack_widths", *args)
    return symbols


def _starts(on: Launching, widths: Array) -> Array:
    """The first bit of each 1024 symbols."""
    sums = on.empty(-(-widths.size // 1024), np.int64)
    on.dense(widths.size, "widths", "width_sums", widths, widths.size, sums)
    return on.xp.cumsum(sums) - sums
