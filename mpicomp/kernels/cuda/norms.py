"""Norms, summed in the order of ``kernels.definition.reductions``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpicomp.base.errors import norm_beyond
from mpicomp.base.formats import WIDTH
from mpicomp.kernels.cuda.launch import Array, Launching, or_null, suffix

MEAN, ROOT, MAX = 1, 2, 3  # what sums.cu's `finish` makes of a sum


def encode_norms(on: Launching, blocks: Sequence[Array], values: str) -> tuple[Array, Array]:
    """The norms of these vectors: their bytes, rounded up to the format ``values``, and their values."""
    w = WIDTH[values]
    heads = on.empty(w * len(blocks), np.uint8)
    places = (heads[w * b : w * (b + 1)] for b in range(len(blocks)))
    each = [scale_of(on, block, ROOT, head) for block, head in zip(blocks, places, strict=True)]
    scales = on.xp.concatenate(each)
    expect_fits(on, scales, values)
    return heads, scales[::2].copy()


def scale_of(on: Launching, x: Array, kind: int, head: Array) -> Array:
    """Write a norm of x into ``head``, the first bytes of a message, without waiting.

    Returns [the norm in ``head``, the exact norm].

    ``kind`` is ROOT, of the sum of squares, or MAX.
    """
    largest = largest_of(on, x) if kind == MAX or x.dtype == np.float64 else None
    sums = None
    if kind == ROOT:
        sums = on.empty(-(-x.size // 1024), np.float64)
        on.dense(x.size, "sums", f"squares_{suffix(x)}", x, x.size, or_null(largest), sums)
    return finish_sum(on, sums, x.size, kind, largest, head)


def largest_of(on: Launching, x: Array) -> Array:
    largest = on.xp.zeros(1, dtype=np.uint64)
    on.dense(x.size, "sums", f"largest_{suffix(x)}", x, x.size, largest)
    return largest


def finish_sum(on: Launching, sums: Array, d: int, kind: int, largest: Array | None, head: Array) -> Array:
    while sums is not None and sums.size > 2**15:
        upper = on.empty(-(-sums.size // 1024), np.float64)
        on.dense(sums.size, "sums", "sums_f64", sums, sums.size, upper)
        sums = upper
    scale = on.empty(2, np.float64)
    on.device.launch(
        "sums", "finish", 1, 1024,
        or_null(sums), 0 if sums is None else sums.size, d, kind, or_null(largest),
        head.size, head, scale, on.device.pointer,
    )  # fmt: skip
    return scale


def expect_fits(on: Launching, scales: Array, values: str) -> None:
    """Wait; raise ``DivergedError`` if one of these norms is infinite in its format."""
    infinite, *_ = on.noted()
    if infinite:
        exact = on.device.host(scales)[1::2]
        raise norm_beyond(float(exact[~(exact <= np.finfo(values).max)][0]), values)
