"""Levels relative to a norm: dithering, natural dithering, ternary."""

from __future__ import annotations

import numpy as np

from mpicomp.base.bits import packed_nbytes
from mpicomp.base.errors import MessageError
from mpicomp.codecs.values import WIDTH
from mpicomp.kernels.cuda.launch import THREADS, Array, flat, suffix
from mpicomp.kernels.cuda.norms import MAX, ROOT, Norms
from mpicomp.kernels.definition.dithering import symbol_too_large
from mpicomp.kernels.definition.philox import StreamName

_TRITS = 5120  # coordinates a block


class Levels(Norms):
    """Whole messages, the norm at their head."""

    def dither(self, x: Array, s: int, p: str, values: str, stream: StreamName) -> Array:
        """The message of ``compressors.Dithering``."""
        return self._levels("dither", x, s, p, values, stream)

    def natural_dither(self, x: Array, s: int, p: str, values: str, stream: StreamName) -> Array:
        """The message of ``compressors.NaturalDithering``."""
        return self._levels("natural_dither", x, s, p, values, stream)

    def ternary(self, x: Array, values: str, stream: StreamName) -> Array:
        """The message of ``compressors.Ternary``."""
        w = WIDTH[values]
        message = self._empty(w + -(-x.size // 5), np.uint8)
        scale = self._scale(x, MAX, message[:w])
        args = (x, x.size, scale, *flat(stream), message[w:])
        self.device.launch("dithering", f"ternary_pack_{suffix(x)}", -(-x.size // _TRITS), THREADS, *args)
        self._expect_fits(scale, values)
        return message

    def add_dither(self, message: Array, out: Array, s: int, values: str, scale: float) -> None:
        """out += scale * what ``dither`` coded."""
        self._add_levels("dither", message, out, s, values, (float(s), float(scale)))

    def add_natural_dither(self, message: Array, out: Array, s: int, values: str, scale: float) -> None:
        """out += scale * what ``natural_dither`` coded."""
        self._add_levels("natural_dither", message, out, s, values, (float(scale),))

    def add_ternary(self, message: Array, out: Array, values: str, scale: float) -> None:
        """out += scale * what ``ternary`` coded."""
        w = WIDTH[values]
        head, trits, d = message[:w], message[w:], out.size
        bad = self._check(trits, trits.size, 8, 242)
        args = (trits, out, d, head, w, float(scale), bad, self.device.pointer)
        self.device.launch("dithering", f"ternary_add_{suffix(out)}", -(-d // _TRITS), THREADS, *args)
        if byte := self._expect_norm(head):
            raise _trits_too_large(byte)

    def _levels(self, kind: str, x: Array, s: int, p: str, values: str, stream: StreamName) -> Array:
        w, width, d = WIDTH[values], (2 * s).bit_length(), x.size
        message = self._empty(w + packed_nbytes(d, width), np.uint8)
        scale = self._scale(x, MAX if p == "inf" else ROOT, message[:w])
        args = (x, d, scale, s, width, *flat(stream), message[w:])
        self._dense(d, "dithering", f"{kind}_pack_{suffix(x)}", *args)
        self._expect_fits(scale, values)
        return message

    def _add_levels(
        self, kind: str, message: Array, out: Array, s: int, values: str, factors: tuple[float, ...]
    ) -> None:
        w, width, d = WIDTH[values], (2 * s).bit_length(), out.size
        head, symbols = message[:w], message[w:]
        bad = self._check(symbols, d, width, 2 * s)
        args = (symbols, out, d, head, w, *factors, s, width, bad, self.device.pointer)
        self._dense(d, "dithering", f"{kind}_add_{suffix(out)}", *args)
        if symbol := self._expect_norm(head):
            raise symbol_too_large(symbol, s)


def _trits_too_large(byte: int) -> MessageError:
    return MessageError(f"byte {byte} among packed trits; five trits make at most 242.")
