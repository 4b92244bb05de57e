"""Quantisers: a short head, and one symbol of a small alphabet for each coordinate."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from mpicomp.coding.bits import Bytes
from mpicomp.compressors.base import Unbiased

Symbols = NDArray[np.int32]


class Quantizer(Unbiased):
    """An unbiased compressor whose message is a head and d symbols, which ``Coded`` can code."""

    @property
    @abstractmethod
    def head(self) -> int:
        """The bytes before the symbols."""

    @property
    @abstractmethod
    def alphabet(self) -> int:
        """The symbols are 0, .., alphabet - 1."""

    @abstractmethod
    def symbols(self, buf: Bytes, d: int) -> Symbols:
        """The d symbols of the message ``buf``."""

    @abstractmethod
    def message(self, head: Bytes, symbols: Symbols) -> Bytes:
        """The message with that head and those symbols: the inverse of ``symbols``."""
