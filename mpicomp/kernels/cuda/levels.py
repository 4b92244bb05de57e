"""Levels relative to a norm: dithering, natural dithering, ternary."""

from __future__ import annotations

import numpy as np

from mpicomp.coding.bits import expect_length, packed_nbytes
from mpicomp.coding.values import WIDTH
from mpicomp.errors import MessageError
from mpicomp.kernels.cuda.launch import THREADS, Array, flat, suffix
from mpicomp.kernels.cuda.norms import MAX, ROOT, Norms
from mpicomp.kernels.dithering import symbol_too_large
from mpicomp.kernels.philox import StreamName


class Levels(Norms):
    """Symbols for a norm that is given, and whole messages, of which it is the head."""

    def dither_pack(self, x: Array, scale: float, s: int, width: int, stream: StreamName) -> Array:
        """Symbols s + level of ``width`` bits, the norm being ``scale``."""
        return self._pack_levels("dither", x, self._given(scale), s, width, stream)

    def natural_dither_pack(self, x: Array, scale: float, s: int, width: int, stream: StreamName) -> Array:
        """The same for levels that are powers of two."""
        return self._pack_levels("natural_dither", x, self._given(scale), s, width, stream)

    def ternary_pack(self, x: Array, scale: float, stream: StreamName) -> Array:
        """Trits 1 + level, five a byte."""
        out = self._empty(-(-x.size // 5), np.uint8)
        self._pack_trits(x, self._given(scale), stream, out)
        return out

    def dither_add(self, buf: Array, out: Array, s: int, width: int, step: float) -> None:
        """out += step * level."""
        self._add_levels("dither", buf, out, self._one.view(np.uint8), (1.0, step), s, width)

    def natural_dither_add(self, buf: Array, out: Array, s: int, width: int, step: float) -> None:
        """out += step * sign(level) 2^(|level| - s), nothing for level 0."""
        self._add_levels("natural_dither", buf, out, self._one.view(np.uint8), (step,), s, width)

    def ternary_add(self, buf: Array, out: Array, step: float) -> None:
        """out += step * level."""
        self._add_trits(buf, out, self._one.view(np.uint8), step)

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
        self._pack_trits(x, scale, stream, message[w:])
        self._expect_fits(scale, values)
        return message

    def add_dither(self, message: Array, out: Array, s: int, values: str, scale: float) -> None:
        """out += scale * what ``dither`` coded."""
        self._add_message("dither", message, out, s, values, (float(s), scale))

    def add_natural_dither(self, message: Array, out: Array, s: int, values: str, scale: float) -> None:
        """out += scale * what ``natural_dither`` coded."""
        self._add_message("natural_dither", message, out, s, values, (scale,))

    def add_ternary(self, message: Array, out: Array, values: str, scale: float) -> None:
        """out += scale * what ``ternary`` coded."""
        w = WIDTH[values]
        self._add_trits(message[w:], out, message[:w], scale)

    def _levels(self, kind: str, x: Array, s: int, p: str, values: str, stream: StreamName) -> Array:
        w, width = WIDTH[values], (2 * s).bit_length()
        message = self._empty(w + packed_nbytes(x.size, width), np.uint8)
        scale = self._scale(x, MAX if p == "inf" else ROOT, message[:w])
        self._pack_levels(kind, x, scale, s, width, stream, message[w:])
        self._expect_fits(scale, values)
        return message

    def _pack_levels(
        self,
        kind: str,
        x: Array,
        scale: Array,
        s: int,
        width: int,
        stream: StreamName,
        out: Array | None = None,
    ) -> Array:
        if out is None:
            out = self._empty(packed_nbytes(x.size, width), np.uint8)
        name = f"{kind}_pack_{suffix(x)}"
        self._dense(x.size, "dithering", name, x, x.size, scale, s, width, *flat(stream), out)
        return out

    def _pack_trits(self, x: Array, scale: Array, stream: StreamName, out: Array) -> None:
        grid, name = -(-x.size // 5120), f"ternary_pack_{suffix(x)}"
        self.device.launch("dithering", name, grid, THREADS, x, x.size, scale, *flat(stream), out)

    def _add_message(
        self, kind: str, message: Array, out: Array, s: int, values: str, factors: tuple[float, ...]
    ) -> None:
        w = WIDTH[values]
        symbols, width = message[w:], (2 * s).bit_length()
        self._add_levels(kind, symbols, out, message[:w], factors, s, width)

    def _add_levels(
        self, kind: str, buf: Array, out: Array, head: Array, factors: tuple[float, ...], s: int, width: int
    ) -> None:
        expect_length(buf, packed_nbytes(out.size, width), "packed symbols")
        bad = self._check(buf, out.size, width, 2 * s)
        step = (head, head.size, *map(float, factors))
        args = (buf, out, out.size, *step, s, width, bad, self.device.pointer)
        self._dense(out.size, "dithering", f"{kind}_add_{suffix(out)}", *args)
        if symbol := self._expect_norm(head):
            raise symbol_too_large(symbol, s)

    def _add_trits(self, buf: Array, out: Array, head: Array, factor: float) -> None:
        expect_length(buf, -(-out.size // 5), "packed trits")
        bad = self._check(buf, buf.size, 8, 242)
        args = (buf, out, out.size, head, head.size, float(factor), bad, self.device.pointer)
        grid, name = -(-out.size // 5120), f"ternary_add_{suffix(out)}"
        self.device.launch("dithering", name, grid, THREADS, *args)
        if byte := self._expect_norm(head):
            raise _trits_too_large(byte)

    def _given(self, scale: float) -> Array:
        norm = self._empty(1, np.float64)
        norm.fill(scale)
        return norm


def _trits_too_large(byte: int) -> MessageError:
    return MessageError(f"byte {byte} among packed trits; five trits make at most 242.")
