"""Entropy coding of positions, for supports that are not uniformly distributed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array, Indices
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import resolve_count
from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.codecs import gaps
from mpicomp.codecs.entropy import (
    PACKED,
    Model,
    checked_model,
    choose,
    decode_symbols,
    encode_symbols,
    model_of,
    smoothed,
)
from mpicomp.codecs.indices import decode_indices, encode_indices
from mpicomp.codecs.varint import read_varint, varint
from mpicomp.codecs.widths import pack_widths, unpack_widths, widths_nbytes
from mpicomp.compressors.base import Contractive, Support
from mpicomp.compressors.quantized import QuantizedTopK
from mpicomp.compressors.topk import TopK
from mpicomp.kernels.index_layouts import index_nbytes
from mpicomp.keys import Key


@dataclass(frozen=True)
class CodedGaps(Contractive):
    """The message of C with the gaps between its positions entropy-coded; C(x) and alpha do not change.

    C's index code takes about log2 binom(d, k) bits, the least possible for uniformly distributed supports.
    Supports of real gradients seldom are: whole rows of a weight matrix are small, or large.

    model  the frequencies of the symbols of ``codecs.gaps``, summing to 2^16, which sender and receiver know
           beforehand; ``learned`` computes them.  Without them, a message carries the model of its symbols.

    Wire: a byte that names the form, the smallest of three.  Packed: C's message.  Fitted: the model, the
    symbols as ``codecs.entropy`` codes them, preceded by the number of their bytes, the bits of the gaps that
    the symbols leave open, and C's message without its index code.  Known: as fitted, without the model.

    C  the compressor whose positions are coded
    """

    paper: ClassVar[str] = "Duda, Asymmetric numeral systems, arXiv 1311.2540"

    C: TopK | QuantizedTopK
    model: Model | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.C, TopK | QuantizedTopK):
            raise ConfigError(f"C={self.C}; allowed: TopK or QuantizedTopK, which send positions.")
        if self.model is not None:
            object.__setattr__(self, "model", checked_model(self.model, gaps.ALPHABET, "a gap"))

    def learned(self, buf: Bytes, d: int) -> Self:
        """This compressor with the model of the gaps in ``buf``, one of its messages for x in R^d."""
        symbols, _ = gaps.symbols_of(self._split(kernels.to_host(buf), d)[0])
        possible = smoothed(np.bincount(symbols, minlength=gaps.used(d)))
        return replace(self, model=possible + (0,) * (gaps.ALPHABET - len(possible)))

    def compress(self, x: Array, key: Key) -> Bytes:
        packed = kernels.to_host(self.C.compress(x, key))
        split = self._index_nbytes(x.size)
        symbols, remainders = gaps.symbols_of(decode_indices(packed[:split], x.size, self._count(x.size)))
        counts = np.bincount(symbols, minlength=gaps.ALPHABET)
        form, model, header = choose(counts, self.model)
        words = encode_symbols(symbols, model)
        length = np.frombuffer(varint(len(words)), dtype=np.uint8)
        widths = gaps.widths_of(symbols)
        open_bits = pack_widths(remainders, widths, widths_nbytes(widths))
        coded = np.concatenate([header, length, words, open_bits])
        if len(coded) >= split:
            form, coded = PACKED, packed[:split]
        return kernels.to_same_place(
            x, np.concatenate([np.array([form], dtype=np.uint8), coded, packed[split:]])
        )

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        self.C.decompress_add(self._packed(buf, out.size), out, key, scale)

    def coordinates(self, buf: Bytes, d: int, key: Key) -> Support:
        if kernels.on_device(buf):
            return (kernels.to_device(self._split(kernels.to_host(buf), d)[0]),)
        return (self._split(buf, d)[0],)

    def _packed(self, buf: Bytes, d: int) -> Bytes:
        """C's message that ``buf`` encodes, on the device of ``buf``."""
        if kernels.on_device(buf):
            return kernels.to_device(self._packed(kernels.to_host(buf), d))
        if len(buf) and buf[0] == PACKED:
            return buf[1:]
        indices, rest = self._split(buf, d)
        return np.concatenate([encode_indices(indices, d), rest])

    def _split(self, buf: Bytes, d: int) -> tuple[Indices, Bytes]:
        """The positions in ``buf``, and the bytes after them.  Raises ``MessageError``."""
        if len(buf) == 0:
            raise MessageError(f"{self}: message truncated, 0 bytes.")
        form = int(buf[0])
        if form == PACKED:
            split = 1 + self._index_nbytes(d)
            return decode_indices(buf[1:split], d, self._count(d)), buf[split:]
        model, end = model_of(form, buf[1:], self.model, gaps.ALPHABET, self)
        size, start = read_varint(buf, 1 + end)
        stop = start + size
        symbols = decode_symbols(buf[start:stop], self._count(d), model)
        widths = gaps.widths_of(symbols)
        nbytes = widths_nbytes(widths)
        split = stop + nbytes
        remainders = unpack_widths(buf[stop:split], widths, nbytes, np.uint64)
        return gaps.indices_of(symbols, remainders, d), buf[split:]

    def _count(self, d: int) -> int:
        return resolve_count(self.C.k, d)

    def _index_nbytes(self, d: int) -> int:
        return index_nbytes(d, self._count(d))

    def nbytes(self, d: int) -> None:
        self._count(d)  # refuses a k above d
        return None

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """C's count, which includes the values only: gaps are positions, which are free."""
        return self.C.paper_bits(self._packed(buf, d), d, key)

    def alpha(self, d: int, n: int) -> float:
        return self.C.alpha(d, n)
