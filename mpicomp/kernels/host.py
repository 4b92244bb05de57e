"""The host's backend: makes whole messages from the functions of ``definition`` or ``compiled``."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np

from mpicomp.base.arrays import Array, Indices, Reals, StreamName
from mpicomp.base.bits import Bytes, expect_length
from mpicomp.base.errors import DivergedError, not_finite
from mpicomp.base.formats import EXPONENT_BITS, WIDTH, exponent_bias
from mpicomp.kernels import coded_bitmaps
from mpicomp.kernels.definition.scales import decode_scale, encode_scale
from mpicomp.kernels.index_layouts import BITMAP, CODED, RAW, index_nbytes, layout
from mpicomp.kernels.interface import Kernels


class Host(Kernels):
    """The kernels that are made of ``pieces``, the package ``definition`` or ``compiled``.

    Both have the same functions.  ``host`` adds the kernels that are one of these functions.
    """

    def __init__(self, pieces: ModuleType) -> None:
        self.pieces = pieces

    def heads(self, stream: StreamName, d: int, p: float | Reals) -> Indices:
        return np.flatnonzero(self.pieces.words(stream, 0, d) < p * 2.0**32)

    def encode_values(self, x: Array, values: str) -> Bytes:
        wire, finite = self.pieces.to_wire(x, values)
        if not finite:
            if not np.isfinite(x).all():
                raise not_finite()
            raise DivergedError(
                f"a value of magnitude {np.abs(x).max():.3g} does not fit the wire format {values!r} "
                f"(allowed: {', '.join(WIDTH)})."
            )
        return wire

    def decode_values(self, buf: Bytes, count: int, values: str) -> Array:
        _expect_values(buf, count, values)
        return self.pieces.from_wire(buf, values)

    def add_values(self, buf: Bytes, out: Array, values: str, scale: float) -> None:
        _expect_values(buf, out.size, values)
        self.pieces.wire_add(buf, out, values, scale)

    def encode_indices(self, indices: Indices, d: int) -> Bytes:
        if 2 * indices.size > d:
            indices = self.pieces.complement(indices, d)
        low, nbytes = layout(d, indices.size)
        if low == RAW:
            return self.pieces.encode_raw(indices, (d - 1).bit_length())
        if low == BITMAP:
            return self.pieces.encode_bitmap(indices, d)
        if low == CODED:
            frequencies = coded_bitmaps.frequencies(d, indices.size)
            return self.pieces.ans_encode(self.pieces.encode_bitmap(indices, d), frequencies, nbytes)
        return self.pieces.encode_elias_fano(indices, d, low)

    def decode_indices(self, buf: Bytes, d: int, k: int) -> Indices:
        expect_length(buf, index_nbytes(d, k), f"{k} of {d} indices")
        j = min(k, d - k)
        low, _ = layout(d, j)
        if low == RAW:
            indices = self.pieces.decode_raw(buf, d, j, (d - 1).bit_length())
        elif low == BITMAP:
            indices = self.pieces.decode_bitmap(buf, d, j)
        elif low == CODED:
            bitmap = self.pieces.ans_decode(buf, -(-d // 8), coded_bitmaps.frequencies(d, j))
            indices = self.pieces.decode_bitmap(bitmap, d, j)
        else:
            indices = self.pieces.decode_elias_fano(buf, d, j, low)
        return self.pieces.complement(indices, d) if 2 * k > d else indices

    def add_elias_fano_stack(
        self, codes: Bytes, out: Array, values: Array, k: int, low: int, scale: float
    ) -> int:
        """Call ``add_elias_fano`` for each of the concatenated ``codes``, with k of the ``values`` each.

        Returns the number of codes added; it stops at the first one that is no valid set.  The device has no
        such function.
        """
        return self.pieces.add_elias_fano_stack(codes, out, values, k, low, scale)

    def encode_norms(self, blocks: Sequence[Array], values: str) -> tuple[Bytes, Reals]:
        coded = [encode_scale(self.pieces.norm(block, "2"), values) for block in blocks]
        return np.concatenate([head for head, _ in coded]), np.array([norm for _, norm in coded])

    def sign(self, x: Array, values: str) -> Bytes:
        mean, bits = self.pieces.sign_pack(x)
        head, _ = encode_scale(mean, values)
        return np.concatenate([head, bits])

    def add_sign(self, message: Bytes, out: Array, values: str, scale: float) -> None:
        mean, bits = _split(message, values)
        self.pieces.sign_add(bits, out, mean * scale)

    def natural(self, x: Array, values: str, stream: StreamName) -> Bytes:
        return self.pieces.natural_pack(x, exponent_bias(values), EXPONENT_BITS[values], stream)

    def add_natural(self, message: Bytes, out: Array, values: str, scale: float) -> None:
        self.pieces.natural_add(message, out, exponent_bias(values), EXPONENT_BITS[values], scale)

    def dither(self, x: Array, s: int, p: str, values: str, stream: StreamName) -> Bytes:
        head, norm = encode_scale(self.pieces.norm(x, p), values)
        return np.concatenate([head, self.pieces.dither_pack(x, norm, s, _width(s), stream)])

    def add_dither(self, message: Bytes, out: Array, s: int, values: str, scale: float) -> None:
        norm, symbols = _split(message, values)
        self.pieces.dither_add(symbols, out, s, _width(s), norm / s * scale)

    def natural_dither(self, x: Array, s: int, p: str, values: str, stream: StreamName) -> Bytes:
        head, norm = encode_scale(self.pieces.norm(x, p), values)
        return np.concatenate([head, self.pieces.natural_dither_pack(x, norm, s, _width(s), stream)])

    def add_natural_dither(self, message: Bytes, out: Array, s: int, values: str, scale: float) -> None:
        norm, symbols = _split(message, values)
        self.pieces.natural_dither_add(symbols, out, s, _width(s), norm * scale)

    def ternary(self, x: Array, values: str, stream: StreamName) -> Bytes:
        head, norm = encode_scale(self.pieces.norm(x, "inf"), values)
        return np.concatenate([head, self.pieces.ternary_pack(x, norm, stream)])

    def add_ternary(self, message: Bytes, out: Array, values: str, scale: float) -> None:
        norm, trits = _split(message, values)
        self.pieces.ternary_add(trits, out, norm * scale)

    def block_floats(self, x: Array, bits: int, block: int, stream: StreamName | None) -> Bytes:
        return self.pieces.block_float_pack(x, bits, block, stream)

    def rotated(self, x: Array, bits: int, block: int, least: bool, stream: StreamName) -> Bytes:
        return self.pieces.rotated_pack(x, bits, block, least, stream)


def host(pieces: ModuleType) -> Host:
    """The backend of ``pieces``.  What ``Host`` does not make is the function of that name there."""
    same = {name: staticmethod(getattr(pieces, name)) for name in Host.__abstractmethods__}
    backend: Host = type("Host", (Host,), same)(pieces)
    return backend


def _split(message: Bytes, values: str) -> tuple[float, Bytes]:
    """(the norm at the head of a message, the rest of the message)."""
    split = WIDTH[values]
    return decode_scale(message[:split], values), message[split:]


def _expect_values(buf: Bytes, count: int, values: str) -> None:
    expect_length(buf, count * WIDTH[values], f"{count} values of format {values!r}")


def _width(s: int) -> int:
    """Bits of the symbols of 2 s + 1 levels."""
    return (2 * s).bit_length()
