"""Entropy coding after quantisation: the more frequent a symbol, the fewer its bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError, MessageError
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
from mpicomp.compressors.base import Unbiased
from mpicomp.compressors.support.quantizer import Quantizer
from mpicomp.keys import Key


@dataclass(frozen=True)
class Coded(Unbiased):
    """C(x) = Q(x), bit for bit, with Q's omega: the message of Q, entropy-coded without loss.

    model  the frequencies of Q's symbols, summing to 2^16, which sender and receiver know beforehand;
           ``learned`` computes them.  Without them, each message carries the model of its own symbols.

    Wire: a byte that names the form, the smallest of three.  Packed: Q's message.  Fitted: Q's head, the
    model, and the symbols as ``codecs.entropy`` codes them.  Known: as fitted, without the model.  So a
    message is at most one byte longer than Q's.

    Q  the quantiser whose symbols are coded
    """

    paper: ClassVar[str] = "Duda, Asymmetric numeral systems, arXiv 1311.2540"

    Q: Quantizer
    model: Model | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.Q, Quantizer):
            raise ConfigError(
                f"Q={self.Q}; allowed: a quantiser: Dithering, Ternary, Natural, NaturalDithering."
            )
        if self.model is not None:
            object.__setattr__(self, "model", checked_model(self.model, self.Q.alphabet, str(self.Q)))

    def learned(self, buf: Bytes, d: int) -> Self:
        """This compressor with the model of the symbols in ``buf``, one of its messages for x in R^d."""
        counts = np.bincount(
            self.Q.symbols(self._packed(kernels.to_host(buf), d), d), minlength=self.Q.alphabet
        )
        return replace(self, model=smoothed(counts))

    def compress(self, x: Array, key: Key) -> Bytes:
        packed = kernels.to_host(self.Q.compress(x, key))
        symbols = self.Q.symbols(packed, x.size)
        counts = np.bincount(symbols, minlength=self.Q.alphabet)
        form, model, header = choose(counts, self.model)
        coded = np.concatenate([packed[: self.Q.head], header, encode_symbols(symbols, model)])
        if len(coded) >= len(packed):
            form, coded = PACKED, packed
        return kernels.to_same_place(x, np.concatenate([np.array([form], dtype=np.uint8), coded]))

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        self.Q.decompress_add(self._packed(buf, out.size), out, key, scale)

    def _packed(self, buf: Bytes, d: int) -> Bytes:
        """Q's message that ``buf`` encodes, on the device of ``buf``."""
        if kernels.on_device(buf):
            return kernels.to_device(self._packed(kernels.to_host(buf), d))
        if len(buf) and buf[0] == PACKED:
            return buf[1:]
        start = 1 + self.Q.head
        if len(buf) < start:
            raise MessageError(f"{self}: message truncated, {len(buf)} bytes.")
        model, end = model_of(int(buf[0]), buf[start:], self.model, self.Q.alphabet, self)
        symbols = decode_symbols(buf[start + end :], d, model)
        return self.Q.message(buf[1:start], symbols)

    def nbytes(self, d: int) -> None:
        return None

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """The bits that Q counts for its own message, to which ``buf`` is decoded first."""
        return self.Q.paper_bits(self._packed(buf, d), d, key)

    def omega(self, d: int, n: int) -> float:
        return self.Q.omega(d, n)

    def ab(self, d: int, n: int) -> tuple[float, float]:
        return self.Q.ab(d, n)
