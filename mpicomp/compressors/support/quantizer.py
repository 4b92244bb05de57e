"""The base of quantisers: a message is a short head, and a symbol of a small alphabet for each coordinate."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from mpicomp.base.arrays import Symbols32
from mpicomp.base.bits import Bytes, pack, packed_nbytes, unpack
from mpicomp.base.formats import WIDTH
from mpicomp.compressors.base import Unbiased
from mpicomp.keys import Key


class Quantizer(Unbiased):
    """An unbiased compressor whose message is a head and d symbols; ``Coded`` entropy-codes the symbols."""

    @property
    @abstractmethod
    def head(self) -> int:
        """The number of bytes before the symbols."""

    @property
    @abstractmethod
    def alphabet(self) -> int:
        """The number of symbols: they are 0, .., alphabet - 1."""

    @abstractmethod
    def symbols(self, buf: Bytes, d: int) -> Symbols32:
        """The d symbols of the message ``buf``."""

    @abstractmethod
    def message(self, head: Bytes, symbols: Symbols32) -> Bytes:
        """The message that consists of ``head`` and ``symbols``: the inverse of ``symbols``."""


class Leveled(Quantizer):
    """A quantiser that sends a norm, and for each coordinate one of 2 s + 1 levels.

    Subclasses are dataclasses with the fields ``s`` and ``values``.

    Wire: the norm in the format ``values``, then d symbols of ceil(log2(2 s + 1)) bits.
    """

    s: int
    values: str

    @property
    def head(self) -> int:
        return WIDTH[self.values]

    @property
    def alphabet(self) -> int:
        return 2 * self.s + 1

    def symbols(self, buf: Bytes, d: int) -> Symbols32:
        return unpack(buf[self.head :], d, self.width).astype(np.int32)

    def message(self, head: Bytes, symbols: Symbols32) -> Bytes:
        return np.concatenate([head, pack(symbols.astype(np.uint64), self.width)])

    @property
    def width(self) -> int:
        """Bits of a symbol."""
        return (2 * self.s).bit_length()

    def nbytes(self, d: int) -> int:
        return self.head + packed_nbytes(d, self.width)

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """32 bits for the norm and ceil(log2(2 s + 1)) = 1 + ceil(log2(s + 1)) for each coordinate."""
        return 32 + d * self.width
