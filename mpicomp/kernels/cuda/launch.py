"""The kernels' launches: how many threads, which buffers, in which order.

Arrays live on the device and what is returned stays there.  x: contiguous, one-dimensional, float32 or
float64.  A ``stream`` is (key, upper counter lanes), as for ``kernels.philox.words``.

Streams.  Every launch, allocation and copy goes to the current CUDA stream of the calling thread.  A
function that may raise, that returns a number or an array whose size depends on the data, or that codes a
dense set of indices (the host does), ends by waiting for that stream, and for no other; what only moves
or selects (``words``, ``permute``, ``top_k``, ``encode_indices`` of a sparse set, ``gather``,
``scatter_add``, ``add_scaled``, ``decode_values``, the ``dither_pack``, ``natural_dither_pack`` and
``ternary_pack`` of a given norm, ``sign_add``) does not wait.
Bytes that are handed to MPI or to another stream have to be waited for by whoever hands them over.

Nothing is added from a message that is refused.  Indices are not checked against the length of x.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from mpicomp.coding import bitmaps
from mpicomp.coding.bits import expect_length, packed_nbytes
from mpicomp.coding.indices import _BITMAP, _CODED, _RAW, _layout, index_nbytes
from mpicomp.coding.values import WIDTH
from mpicomp.errors import ConfigError, DivergedError, MessageError, not_finite
from mpicomp.kernels.dithering import symbol_too_large
from mpicomp.kernels.natural import code_too_large
from mpicomp.kernels.permutation import SMALL
from mpicomp.kernels.philox import StreamName
from mpicomp.kernels.positions import refused
from mpicomp.kernels.selection import least_bits

Array = Any  # an array of the device's library

_THREADS, _BLOCK, _TILE = 256, 8192, 1024  # threads a block, coordinates a block, words of marks a tile
_SUM, _MEAN, _ROOT, _MAX = range(4)  # what sums.cu's `finish` makes of a sum
_NULL = 0
_FORMATS = {"f8": np.float64, "f4": np.float32, "f2": np.float32, "bf16": np.float32}


class Device(Protocol):
    """Where kernels run: an array library, and a way to launch; ``gpu.Gpu``, or a CPU that plays one."""

    xp: Any
    multiprocessors: int
    notes: (
        Any  # four 64-bit numbers that the host and the kernels see; 0 but after a kernel has noted something
    )
    pointer: Any  # to them, as ``launch`` takes it

    def launch(self, module: str, kernel: str, grid: int, block: int, *args: Any) -> None:
        """Run ``kernel`` of ``module`` on grid x block threads."""

    def expit(self, x: Array) -> Array:
        """1/(1 + exp(-x)), elementwise: the library's, which has scipy.special's name for it."""

    def wait(self) -> None:
        """Until everything launched so far is done."""

    def put(self, a: Any) -> Array:
        """An array of the host's on the device; what lies there stays."""

    def host(self, a: Array) -> Any:
        """A device array as one of numpy's, once everything launched so far is done."""


class Kernels:
    """The list of kernels on one device."""

    def __init__(self, device: Device) -> None:
        self.device, self.xp = device, device.xp
        self.put, self.host = device.put, device.host
        self._one = self._empty(1, np.float64)  # a norm of 1 where a caller brings the whole step
        self._one.fill(1.0)

    # --- random words, permutations ---

    def words(self, stream: StreamName, start: int, count: int) -> Array:
        """Words start .. start + count of the stream, uint32."""
        out = self._empty(count, np.uint32)
        self._each(-(-(count + start % 4) // 4), "sparse", "words", start, count, *_flat(stream), out)
        return out

    def permute(self, stream: StreamName, d: int, start: int, stop: int) -> Array:
        """pi(start), .., pi(stop - 1), int64, as ``kernels.permutation``."""
        if d <= SMALL:
            whole = self._empty(d, np.int64)
            self.device.launch("sparse", "permute_small", 1, 1024, d, *_flat(stream), whole)
            return whole[start:stop]
        out = self._empty(stop - start, np.int64)
        self._each(out.size, "sparse", "permute", start, out.size, d, *_flat(stream), out)
        return out

    # --- norms ---

    def norm(self, x: Array, p: str) -> float:
        """The 2-norm (p = "2") or max-norm ("inf") of x."""
        return self._exact(self._scale(x, _MAX if p == "inf" else _ROOT))

    def mean_magnitude(self, x: Array) -> float:
        """|x|_1 / d."""
        return self._exact(self._scale(x, _MEAN))

    def _exact(self, scale: Array) -> float:
        exact = float(self.device.host(scale)[1])
        self._noted()
        return exact

    def _scale(self, x: Array, kind: int, head: Array | None = None) -> Array:
        """[what is in ``head``, the exact norm], without waiting; ``head``: the first bytes of a message."""
        largest = self._largest(x) if kind == _MAX or x.dtype == np.float64 else None
        sums = None
        if kind != _MAX:
            sums = self._empty(-(-x.size // 1024), np.float64)
            name = ("squares_" if kind == _ROOT else "magnitudes_") + _suffix(x)
            self._dense(x.size, "sums", name, x, x.size, _or_null(largest), sums)
        return self._finish(sums, x.size, kind, largest, head)

    def _largest(self, x: Array) -> Array:
        largest = self.xp.zeros(1, dtype=np.uint64)
        self._dense(x.size, "sums", f"largest_{_suffix(x)}", x, x.size, largest)
        return largest

    def _finish(self, sums: Array, d: int, kind: int, largest: Array | None, head: Array | None) -> Array:
        while sums is not None and sums.size > 2**15:
            upper = self._empty(-(-sums.size // 1024), np.float64)
            self._dense(sums.size, "sums", "magnitudes_f64", sums, sums.size, _NULL, upper)
            sums = upper
        scale = self._empty(2, np.float64)
        self.device.launch(
            "sums", "finish", 1, 1024,
            _or_null(sums), 0 if sums is None else sums.size, d, kind, _or_null(largest),
            0 if head is None else head.size, _or_null(head), scale, self.device.pointer,
        )  # fmt: skip
        return scale

    def _expect_fits(self, scale: Array, values: str) -> None:
        infinite, *_ = self._noted()
        if infinite:
            exact = float(self.device.host(scale)[1])
            raise DivergedError(
                f"a norm of {exact:.3g} does not fit the wire format {values!r} (allowed: f4, f8)."
            )

    # --- sign ---

    def sign_pack(self, x: Array) -> tuple[float, Array]:
        """|x|_1 / d, and one bit a coordinate, 1 where it is below 0: one pass over a float32 x."""
        bits = self._empty(packed_nbytes(x.size, 1), np.uint8)
        return self._exact(self._pack_signs(x, bits, None)), bits

    def sign_add(self, buf: Array, out: Array, step: float) -> None:
        """out += -step where the bit is set, +step elsewhere."""
        self._add_signs(buf, out, self._one.view(np.uint8), step)

    def sign(self, x: Array, values: str) -> Array:
        """The message of ``compressors.Sign``."""
        w = WIDTH[values]
        message = self._empty(w + packed_nbytes(x.size, 1), np.uint8)
        self._expect_fits(self._pack_signs(x, message[w:], message[:w]), values)
        return message

    def _pack_signs(self, x: Array, bits: Array, head: Array | None) -> Array:
        largest = self._largest(x) if x.dtype == np.float64 else None
        sums = self._empty(-(-x.size // 1024), np.float64)
        self._dense(x.size, "sign", f"sign_pack_{_suffix(x)}", x, x.size, _or_null(largest), sums, bits)
        return self._finish(sums, x.size, _MEAN, largest, head)

    def add_sign(self, message: Array, out: Array, values: str, scale: float) -> None:
        """out += scale * what ``sign`` coded."""
        w = WIDTH[values]
        expect_length(message, w + packed_nbytes(out.size, 1), "signs")
        self._add_signs(message[w:], out, message[:w], scale)
        self._expect_norm(message[:w])

    def _add_signs(self, bits: Array, out: Array, head: Array, factor: float) -> None:
        name, pointer = f"sign_add_{_suffix(out)}", self.device.pointer
        self._dense(out.size, "sign", name, bits, out, out.size, head, head.size, float(factor), pointer)

    # --- natural compression ---

    def natural_pack(self, x: Array, bias: int, width: int, stream: StreamName) -> Array:
        """d sign bits, then d exponent codes: the message of ``compressors.Natural``.

        Raises ``DivergedError`` unless x is finite.
        """
        d = x.size
        buf = self._empty(packed_nbytes(d, 1) + packed_nbytes(d, width), np.uint8)
        name = f"natural_pack_{bias}_{_suffix(x)}"
        self._dense(d, "natural", name, x, d, *_flat(stream), buf, self.device.pointer)
        if self._noted()[0]:
            raise not_finite()
        return buf

    def natural_add(self, buf: Array, out: Array, bias: int, width: int, scale: float) -> None:
        """out += scale * what ``natural_pack`` coded."""
        d = out.size
        expect_length(buf, packed_nbytes(d, 1) + packed_nbytes(d, width), "signs and exponents")
        bad = self._check(buf[packed_nbytes(d, 1) :], d, width, 2 * bias)
        self._dense(d, "natural", f"natural_add_{bias}_{_suffix(out)}", buf, out, d, float(scale), bad)
        _, code, _ = self._noted()
        if code:
            raise code_too_large(code, bias)

    # --- levels relative to a norm ---

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
        scale = self._scale(x, _MAX, message[:w])
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
        scale = self._scale(x, _MAX if p == "inf" else _ROOT, message[:w])
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
        name = f"{kind}_pack_{_suffix(x)}"
        self._dense(x.size, "dithering", name, x, x.size, scale, s, width, *_flat(stream), out)
        return out

    def _pack_trits(self, x: Array, scale: Array, stream: StreamName, out: Array) -> None:
        grid, name = -(-x.size // 5120), f"ternary_pack_{_suffix(x)}"
        self.device.launch("dithering", name, grid, _THREADS, x, x.size, scale, *_flat(stream), out)

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
        self._dense(out.size, "dithering", f"{kind}_add_{_suffix(out)}", *args)
        if symbol := self._expect_norm(head):
            raise symbol_too_large(symbol, s)

    def _add_trits(self, buf: Array, out: Array, head: Array, factor: float) -> None:
        expect_length(buf, -(-out.size // 5), "packed trits")
        bad = self._check(buf, buf.size, 8, 242)
        args = (buf, out, out.size, head, head.size, float(factor), bad, self.device.pointer)
        grid, name = -(-out.size // 5120), f"ternary_add_{_suffix(out)}"
        self.device.launch("dithering", name, grid, _THREADS, *args)
        if byte := self._expect_norm(head):
            raise _trits_too_large(byte)

    def _given(self, scale: float) -> Array:
        norm = self._empty(1, np.float64)
        norm.fill(scale)
        return norm

    # --- selection ---

    def top_k(self, x: Array, k: int) -> Array:
        """The indices of the k largest magnitudes, increasing; ties go to the lowest index."""
        d, name = x.size, _suffix(x)
        if k == d:
            return self.xp.arange(d)
        words = _words(d)
        state = self.xp.zeros(3 + 4096, dtype=np.uint64)
        s, histogram = state[:3], state[3:]
        above, inside = self._empty(words, np.uint32), self._empty(words, np.uint32)
        grid = min(-(-d // _BLOCK), 4 * self.device.multiprocessors)
        self.device.launch("selection", f"first_digit_{name}", grid, _THREADS, x, d, k, s, histogram)
        self.device.launch("selection", f"mark_{name}", grid, _THREADS, x, d, above, inside, s, histogram)
        shift = 8 * x.itemsize - 1 - 22
        for bits in (9,) if x.itemsize == 4 else (11, 10, 10, 10):
            shift -= bits
            grid = min(-(-words // _THREADS), 4 * self.device.multiprocessors)
            name_ = f"refine_{name}"
            self.device.launch(
                "selection", name_, grid, _THREADS, x, inside, words, shift, bits, s, histogram
            )
        tiles = -(-words // _TILE)
        counts, ties = self._empty(tiles + 1, np.uint64), self._empty(tiles + 1, np.uint64)
        self.device.launch(
            "selection", f"settle_{name}", tiles, _THREADS, x, above, inside, words, s, counts, ties
        )
        out = self._empty(k, np.int64)
        self.device.launch(
            "selection", "collect", tiles, _THREADS, above, inside, words, s, counts, ties, k, out
        )
        return out

    def at_least(self, x: Array, lam: float) -> Array:
        """The indices where |x_j| >= lam and x_j != 0, increasing."""
        return self._marked(x, least_bits(lam, x.dtype))

    def nonzero(self, x: Array) -> Array:
        """The indices where x_j is not 0, increasing."""
        return self._marked(x, 1)

    def coins(self, stream: StreamName, d: int, q: float) -> Array:
        """The indices whose words are below q 2^32, increasing: ``compressors.Bernoulli``'s support."""
        marks = self._empty(_words(d), np.uint32)
        self._dense(d, "selection", "mark_coins", d, q * 2.0**32, *_flat(stream), marks)
        return self._positions(marks, None)

    def _marked(self, x: Array, least: int) -> Array:
        marks = self._empty(_words(x.size), np.uint32)
        self._dense(x.size, "selection", f"at_least_{_suffix(x)}", x, x.size, least, marks)
        return self._positions(marks, None)

    def _positions(self, marks: Array, expected: int | None) -> Array:
        """Where marks are; if their number is not the expected one, what comes back has another size."""
        tiles = -(-marks.size // _TILE)
        counts = self._empty(tiles + 1, np.uint64)
        arrived = self.xp.zeros(1, dtype=np.uint32)
        self.device.launch(
            "selection", "tally", tiles, _THREADS, marks, marks.size, arrived, counts, self.device.pointer
        )
        *_, found = self._noted()
        out = self._empty(found if expected is None or found != expected else expected, np.int64)
        self.device.launch(
            "selection",
            "collect",
            tiles,
            _THREADS,
            marks,
            _NULL,
            marks.size,
            _NULL,
            counts,
            _NULL,
            found,
            out,
        )
        return out

    # --- index sets ---

    def encode_indices(self, indices: Array, d: int) -> Array:
        """The bytes of ``coding.indices.encode_indices``."""
        out = self._empty(index_nbytes(d, indices.size), np.uint8)
        self._encode_indices(indices, d, out)
        return out

    def _encode_indices(self, indices: Array, d: int, out: Array) -> None:
        if 2 * indices.size > d:
            indices = self._complement(indices, d)
        k = indices.size
        if k == 0:
            return
        layout, _ = _layout(d, k)
        if layout == _CODED:
            bitmap = self.device.host(self._marks(indices, _BITMAP, d))
            out[:] = self.xp.asarray(bitmaps.encode(bitmap, d, k))
            return
        width = _symbol_width(layout, d)
        split = packed_nbytes(k, width)
        self._each(split, "indices", "pack_lower", indices, k, width, out, split)
        if layout != _RAW:
            out[split:] = self._marks(indices, layout, 8 * (out.size - split))

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
            layout, buf = _BITMAP, self.xp.asarray(bitmaps.decode(self.device.host(buf), d, k))
        width = _symbol_width(layout, d)
        split = packed_nbytes(k, width)
        upper = None
        if layout != _RAW:
            nbits = d if layout == _BITMAP else k + ((d - 1) >> layout)
            marks = self._empty(_words(nbits), np.uint32)
            self._each(marks.size, "selection", "import_bits", buf[split:], nbits, marks, marks.size)
            upper = self._positions(marks, k)
        out = self._empty(k, np.int64)
        bad = 0
        if upper is None or upper.size == k:
            lower = (_or_null(upper), buf, split)
            self._each(k, "indices", "join", *lower, k, d, layout, width, out, self.device.pointer)
            bad, *_ = self._noted()
        if bad or (upper is not None and upper.size != k):
            raise refused(d, k)
        return out

    def _complement(self, indices: Array, d: int) -> Array:
        marks = self.xp.zeros(_words(d), dtype=np.uint32)
        self._each(indices.size, "indices", "set_upper", indices, indices.size, _BITMAP, marks)
        self._each(marks.size, "selection", "invert", marks, marks.size, d)
        return self._positions(marks, None)

    # --- values ---

    def gather(self, x: Array, indices: Array) -> Array:
        """x[indices]."""
        out, indices = self._empty(indices.size, x.dtype), self.put(indices)
        self._each(out.size, "sparse", f"gather_{_suffix(x)}", x, indices, out.size, out)
        return out

    def scatter_add(self, out: Array, indices: Array, values: Array, scale: float) -> None:
        """out[indices] += scale * values; no index comes twice."""
        name = f"scatter_add_{_suffix(out)}_{_suffix(values)}"
        self._each(indices.size, "sparse", name, out, self.put(indices), values, indices.size, float(scale))

    def expit(self, x: Array) -> Array:
        """1/(1 + exp(-x)), elementwise."""
        return self.device.expit(x)

    def add_scaled(self, out: Array, x: Array, scale: float) -> None:
        """out += scale * x."""
        name = f"add_scaled_{_suffix(out)}_{_suffix(x)}"
        self._dense(out.size, "sparse", name, out, x, out.size, float(scale))

    def encode_values(self, x: Array, values: str) -> Array:
        """x in the wire format ``values``.  Raises ``DivergedError`` where one overflows or is not finite."""
        out = self._empty(x.size * WIDTH[values], np.uint8)
        self._encode_values(x, None, values, out)
        return out

    def _encode_values(self, x: Array, indices: Array | None, values: str, out: Array) -> None:
        name, pointer = f"encode_{values}_{_suffix(x)}", self.device.pointer
        if indices is None:
            self._dense(x.size, "sparse", name, x, x.size, out, pointer)
        else:
            self._each(indices.size, "sparse", f"{name}_at", x, indices, indices.size, out, pointer)
        if self._noted()[0]:
            sent = x if indices is None else self.gather(x, indices)
            if not self.xp.isfinite(sent).all():
                raise not_finite()
            raise DivergedError(
                f"a value of magnitude {float(abs(sent).max()):.3g} does not fit the wire format {values!r} "
                f"(allowed: {', '.join(WIDTH)})."
            )

    def decode_values(self, buf: Array, count: int, values: str) -> Array:
        """The ``count`` numbers in ``buf``: float64 from f8, else float32."""
        expect_length(buf, count * WIDTH[values], f"{count} values of format {values!r}")
        out = self._empty(count, _FORMATS[values])
        self._each(count, "sparse", f"decode_{values}", buf, count, out)
        return out

    # --- whole messages of coordinates ---

    def top(self, x: Array, k: int, values: str) -> Array:
        """The message of ``compressors.TopK``."""
        split = index_nbytes(x.size, k)
        message = self._empty(split + k * WIDTH[values], np.uint8)
        indices = self.top_k(x, k)
        self._encode_indices(indices, x.size, message[:split])
        self._encode_values(x, indices, values, message[split:])
        return message

    def add_top(self, message: Array, out: Array, k: int, values: str, scale: float) -> None:
        """out += scale * what ``top`` coded."""
        split = index_nbytes(out.size, k)
        expect_length(message, split + k * WIDTH[values], f"{k} of {out.size} coordinates")
        indices = self.decode_indices(message[:split], out.size, k)
        self.scatter_add(out, indices, self.decode_values(message[split:], k, values), scale)

    def threshold(self, x: Array, lam: float, values: str) -> Array:
        """The message of ``compressors.HardThreshold``."""
        return self.sparse(x, self.at_least(x, lam), values)

    def sparse(self, x: Array, indices: Array, values: str) -> Array:
        """``coding.sparse.encode_sparse`` of x at increasing indices."""
        k, head = indices.size, -(-int(x.size).bit_length() // 8)
        split = head + index_nbytes(x.size, k)
        message = self._empty(split + k * WIDTH[values], np.uint8)
        self._each(head, "indices", "put_count", k, head, message)
        self._encode_indices(indices, x.size, message[head:split])
        self._encode_values(x, indices, values, message[split:])
        return message

    def add_sparse(self, message: Array, out: Array, values: str, scale: float) -> None:
        """out += scale * what ``sparse`` coded.  Raises ``MessageError`` if it holds no such vector."""
        d, head = out.size, -(-int(out.size).bit_length() // 8)
        k = int.from_bytes(self.device.host(message[:head]).tobytes(), "little")
        if message.size < head or k > d:
            raise MessageError(
                f"a message of {message.size} bytes announces {k} entries of a vector in R^{d}."
            )
        split = head + index_nbytes(d, k)
        indices = self.decode_indices(message[head:split], d, k)
        self.scatter_add(out, indices, self.decode_values(message[split:], k, values), scale)

    def chosen(self, x: Array, indices: Array, values: str) -> Array:
        """x at indices that the receiver knows: the message of RandK, PermK and Bernoulli."""
        out = self._empty(indices.size * WIDTH[values], np.uint8)
        self._encode_values(x, indices, values, out)
        return out

    # --- launching ---

    def _check(self, buf: Array, count: int, width: int, most: int) -> Array:
        """A flag on the device: is one of the symbols larger than ``most``?"""
        bad = self.xp.zeros(1, dtype=np.uint32)
        self._dense(count, "check", "check", buf, count, width, most, bad, self.device.pointer)
        return bad

    def _expect_norm(self, head: Array) -> int:
        """Wait; raise ``MessageError`` if the norm in ``head`` is none.  A symbol that is too large, or 0."""
        norm, symbol, _ = self._noted()
        if norm:
            value = self.device.host(head).view(f"<f{head.size}")[0]
            raise MessageError(
                f"a norm of {value} at the head of a message; it must be finite and not negative."
            )
        return symbol

    def _noted(self) -> tuple[int, int, int]:
        """What kernels have noted (something is refused or infinite, a bad symbol, a count), once."""
        self.device.wait()
        bad, symbol, count, _ = self.device.notes.tolist()
        self.device.notes.fill(0)
        return bad, symbol, count

    def _dense(self, d: int, module: str, kernel: str, *args: Any) -> None:
        self.device.launch(module, kernel, -(-d // _BLOCK), _THREADS, *args)

    def _each(self, count: int, module: str, kernel: str, *args: Any) -> None:
        self.device.launch(module, kernel, -(-count // _THREADS), _THREADS, *args)

    def _empty(self, count: int, dtype: Any) -> Array:
        return self.xp.empty(count, dtype=dtype)


def _trits_too_large(byte: int) -> MessageError:
    return MessageError(f"byte {byte} among packed trits; five trits make at most 242.")


def _suffix(x: Array) -> str:
    """The type in a kernel's name."""
    if x.ndim != 1 or not x.flags.c_contiguous or x.dtype not in (np.float32, np.float64):
        raise ConfigError(
            f"an array of shape {x.shape} and type {x.dtype}; allowed: contiguous, one-dimensional, "
            "float32 or float64."
        )
    return "f32" if x.dtype == np.float32 else "f64"


def _words(bits: int) -> int:
    """Words of marks for that many coordinates."""
    return 32 * -(-bits // 1024)


def _symbol_width(layout: int, d: int) -> int:
    """Bits of each index that are packed as a symbol."""
    return (d - 1).bit_length() if layout == _RAW else max(layout, 0)


@lru_cache
def _flat(stream: StreamName) -> tuple[int, ...]:
    """A stream as kernels take it: the keys of Philox's ten rounds, then the upper counter lanes."""
    (k0, k1), (c1, c2, c3) = stream
    low = [(k0 + r * 0x9E3779B9) & 0xFFFFFFFF for r in range(10)]
    high = [(k1 + r * 0xBB67AE85) & 0xFFFFFFFF for r in range(10)]
    return (*map(_pair, low, high), _pair(c1, c2), c3)


def _pair(low: int, high: int) -> int:
    """Two 32-bit words as one signed 64-bit number."""
    both = high << 32 | low
    return both - 2**64 if high >> 31 else both


def _or_null(a: Array | None) -> Array | int:
    return _NULL if a is None else a
