"""The interface of the kernels of every backend: draws, selections, codes and whole messages.

Vectors are contiguous, one-dimensional, float32 or float64; on a device, arrays of its library.  A message is
uint8.  ``stream`` names the random words that are drawn.  All backends give the same bytes.

A method that adds to ``out`` raises ``MessageError`` for an invalid message, and then adds nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array, Indices, Reals, StreamName, Symbols, Widths, Words
from mpicomp.base.bits import Bytes
from mpicomp.kernels.tiles import Tiles


class Kernels(ABC):
    """The kernels of one backend."""

    # Draws.

    @abstractmethod
    def words(self, stream: StreamName, start: int, count: int) -> Words:
        """Words start, .., start + count - 1 of the stream."""

    @abstractmethod
    def permute(self, stream: StreamName, d: int, start: int, stop: int) -> Indices:
        """pi(start), .., pi(stop - 1) for the permutation pi of {0, .., d-1} that the stream names."""

    @abstractmethod
    def heads(self, stream: StreamName, d: int, p: float | Reals) -> Indices:
        """The indices of the d coins that fall heads, increasing: the words below p 2^32.

        p: the probability of heads, one for all coins or of shape (d,).
        """

    # Coordinates of a vector.

    @abstractmethod
    def top_k(self, x: Array, k: int) -> Indices:
        """The indices of the k largest magnitudes, increasing; ties go to the lowest index."""

    @abstractmethod
    def top_k_of_tiles(self, x: Array, tiles: Tiles, k: int) -> Indices:
        """``top_k`` of each tile of the matrix x, as increasing indices into ``tiles.of(x).ravel()``."""

    @abstractmethod
    def at_least(self, x: Array, lam: float) -> Indices:
        """The indices where |x_j| >= lam and x_j != 0, increasing."""

    @abstractmethod
    def nonzero(self, x: Array) -> Indices:
        """The indices where x_j is not 0, increasing."""

    @abstractmethod
    def count_nonzero(self, x: Array) -> int:
        """The number of indices where x_j is not 0."""

    @abstractmethod
    def gather(self, x: Array, indices: Indices) -> Array:
        """x[indices]."""

    @abstractmethod
    def scatter_add(self, out: Array, indices: Indices, values: Array, scale: float) -> None:
        """out[indices] += scale * values; no index comes twice."""

    @abstractmethod
    def add_scaled(self, out: Array, x: Array, scale: float) -> None:
        """out += scale * x in float64, rounded to the type of ``out``."""

    @abstractmethod
    def are_singles(self, x: Array) -> bool:
        """Whether every entry is exactly representable in float32."""

    # Numbers, positions and symbols on the wire.

    @abstractmethod
    def encode_values(self, x: Array, values: str) -> Bytes:
        """x in the format ``values``.  Raises ``DivergedError`` where an entry overflows or is not finite."""

    @abstractmethod
    def decode_values(self, buf: Bytes, count: int, values: str) -> Array:
        """The ``count`` numbers in ``buf``: float64 from f8, else float32."""

    @abstractmethod
    def add_values(self, buf: Bytes, out: Array, values: str, scale: float) -> None:
        """out += scale times the numbers in ``buf``."""

    @abstractmethod
    def encode_indices(self, indices: Indices, d: int) -> Bytes:
        """The index code of strictly increasing ``indices`` below d: see ``codecs.indices``."""

    @abstractmethod
    def decode_indices(self, buf: Bytes, d: int, k: int) -> Indices:
        """The k increasing indices below d in ``buf``."""

    @abstractmethod
    def add_elias_fano(self, buf: Bytes, out: Array, values: Array, low: int, scale: float) -> None:
        """out += scale * values at the indices of an Elias-Fano code with ``low`` low bits, if it is a set.

        Raises ``MessageError``, and adds nothing, if it is none.
        """

    @abstractmethod
    def pack_widths(self, symbols: NDArray[np.unsignedinteger], widths: Widths, nbytes: int) -> Bytes:
        """Pack the symbols, symbol i below 2^widths[i], without gaps into ``nbytes`` bytes."""

    @abstractmethod
    def unpack_widths(
        self, buf: Bytes, widths: Widths, dtype: type[np.unsignedinteger]
    ) -> NDArray[np.unsignedinteger]:
        """Unpack the symbols in ``buf``, which has the right length."""

    @abstractmethod
    def encode_norms(self, blocks: Sequence[Array], values: str) -> tuple[Bytes, Reals]:
        """The bytes of the vectors' 2-norms, each rounded up to the format ``values``, and the rounded norms.

        Raises ``DivergedError`` if a norm does not fit the format.
        """

    # Whole messages of quantisers: ``compressors`` describes each.

    @abstractmethod
    def sign(self, x: Array, values: str) -> Bytes:
        """The message of ``Sign``."""

    @abstractmethod
    def add_sign(self, message: Bytes, out: Array, values: str, scale: float) -> None:
        """out += scale times the vector in a message of ``sign``."""

    @abstractmethod
    def natural(self, x: Array, values: str, stream: StreamName) -> Bytes:
        """The message of ``Natural``."""

    @abstractmethod
    def add_natural(self, message: Bytes, out: Array, values: str, scale: float) -> None:
        """out += scale times the vector in a message of ``natural``."""

    @abstractmethod
    def dither(self, x: Array, s: int, p: str, values: str, stream: StreamName) -> Bytes:
        """The message of ``Dithering`` with s levels of the p-norm."""

    @abstractmethod
    def add_dither(self, message: Bytes, out: Array, s: int, values: str, scale: float) -> None:
        """out += scale times the vector in a message of ``dither``."""

    @abstractmethod
    def natural_dither(self, x: Array, s: int, p: str, values: str, stream: StreamName) -> Bytes:
        """The message of ``NaturalDithering`` with s levels of the p-norm."""

    @abstractmethod
    def add_natural_dither(self, message: Bytes, out: Array, s: int, values: str, scale: float) -> None:
        """out += scale times the vector in a message of ``natural_dither``."""

    @abstractmethod
    def ternary(self, x: Array, values: str, stream: StreamName) -> Bytes:
        """The message of ``Ternary``."""

    @abstractmethod
    def add_ternary(self, message: Bytes, out: Array, values: str, scale: float) -> None:
        """out += scale times the vector in a message of ``ternary``."""

    @abstractmethod
    def block_floats(self, x: Array, bits: int, block: int, stream: StreamName | None) -> Bytes:
        """The message of ``BlockFloat``; with a stream, of ``BlockDithering``."""

    @abstractmethod
    def add_block_floats(self, message: Bytes, out: Array, bits: int, block: int, scale: float) -> None:
        """out += scale times the vector in a message of ``block_floats``."""

    @abstractmethod
    def rotated(self, x: Array, bits: int, block: int, least: bool, stream: StreamName) -> Bytes:
        """The message of ``EDEN``: with the scale of the ``least`` error, or of the inner product."""

    @abstractmethod
    def add_rotated(
        self, message: Bytes, out: Array, bits: int, block: int, scale: float, stream: StreamName
    ) -> None:
        """out += scale times the vector in a message of ``rotated``."""

    @abstractmethod
    def step_symbols(self, x: Array, norms: Reals, r: Reals, stream: StreamName) -> Symbols:
        """The symbols of r x / N, rounded without bias; N >= |x_j| in each block, r below 2^15."""

    @abstractmethod
    def add_steps(self, symbols: Symbols, out: Array, norms: Reals, r: Reals, scale: float) -> None:
        """out += scale N/r times the levels; a level of 0 adds 0, whatever N/r is."""
