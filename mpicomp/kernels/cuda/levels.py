"""Levels relative to a norm: dithering, natural dithering, ternary."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import StreamName
from mpicomp.base.bits import packed_nbytes
from mpicomp.base.errors import MessageError
from mpicomp.base.formats import WIDTH
from mpicomp.kernels.cuda import norms
from mpicomp.kernels.cuda.launch import THREADS, Array, Launching, flat, suffix
from mpicomp.kernels.cuda.norms import MAX, ROOT
from mpicomp.kernels.definition.dithering import symbol_too_large

_TRITS = 5120  # coordinates a block


def dither(on: Launching, x: Array, s: int, p: str, values: str, stream: StreamName) -> Array:
    """The message of ``compressors.Dithering``."""
    return _levels(on, "dither", x, s, p, values, stream)


def natural_dither(on: Launching, x: Array, s: int, p: str, values: str, stream: StreamName) -> Array:
    """The message of ``compressors.NaturalDithering``."""
    return _levels(on, "natural_dither", x, s, p, values, stream)


def ternary(on: Launching, x: Array, values: str, stream: StreamName) -> Array:
    """The message of ``compressors.Ternary``."""
    w = WIDTH[values]
    message = on.empty(w + -(-x.size // 5), np.uint8)
    scale = norms.scale_of(on, x, MAX, message[:w])
    args = (x, x.size, scale, *flat(stream), message[w:])
    on.device.launch("dithering", f"ternary_pack_{suffix(x)}", -(-x.size // _TRITS), THREADS, *args)
    norms.expect_fits(on, scale, values)
    return message


def add_dither(on: Launching, message: Array, out: Array, s: int, values: str, scale: float) -> None:
    """out += scale * C(x), where ``message`` is from ``dither``."""
    _add_levels(on, "dither", message, out, s, values, (float(s), float(scale)))


def add_natural_dither(on: Launching, message: Array, out: Array, s: int, values: str, scale: float) -> None:
    """out += scale * C(x), where ``message`` is from ``natural_dither``."""
    _add_levels(on, "natural_dither", message, out, s, values, (float(scale),))


def add_ternary(on: Launching, message: Array, out: Array, values: str, scale: float) -> None:
    """out += scale * C(x), where ``message`` is from ``ternary``."""
    w = WIDTH[values]
    head, trits, d = message[:w], message[w:], out.size
    bad = on.check(trits, trits.size, 8, 242)
    args = (trits, out, d, head, w, float(scale), bad, on.device.pointer)
    on.device.launch("dithering", f"ternary_add_{suffix(out)}", -(-d // _TRITS), THREADS, *args)
    if byte := on.expect_norm(head):
        raise _trits_too_large(byte)


def _levels(on: Launching, kind: str, x: Array, s: int, p: str, values: str, stream: StreamName) -> Array:
    w, width, d = WIDTH[values], (2 * s).bit_length(), x.size
    message = on.empty(w + packed_nbytes(d, width), np.uint8)
    scale = norms.scale_of(on, x, MAX if p == "inf" else ROOT, message[:w])
    args = (x, d, scale, s, width, *flat(stream), message[w:])
    on.dense(d, "dithering", f"{kind}_pack_{suffix(x)}", *args)
    norms.expect_fits(on, scale, values)
    return message


def _add_levels(
    on: Launching, kind: str, message: Array, out: Array, s: int, values: str, factors: tuple[float, ...]
) -> None:
    w, width, d = WIDTH[values], (2 * s).bit_length(), out.size
    head, symbols = message[:w], message[w:]
    bad = on.check(symbols, d, width, 2 * s)
    args = (symbols, out, d, head, w, *factors, s, width, bad, on.device.pointer)
    on.dense(d, "dithering", f"{kind}_add_{suffix(out)}", *args)
    if symbol := on.expect_norm(head):
        raise symbol_too_large(symbol, s)


def _trits_too_large(byte: int) -> MessageError:
    return MessageError(f"byte {byte} among packed trits; five trits make at most 242.")
