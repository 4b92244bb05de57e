"""What a compressor promises.

A compressor is a frozen dataclass without state: its fields are its configuration and
``eval(repr(c)) == c``.  ``compress`` turns a vector into the bytes that are sent and
``decompress_add`` is the only way back, on every rank, the sender's own included: the decoded value
is the truth.  Both ends hold the same ``Key``, so whatever follows from it is never transmitted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError
from mpicomp.keys import Key

Array = NDArray[np.floating]


class Compressor(ABC):
    """A map C from R^d to bytes, and back; d >= 1.

    The constants of the classes below are those of exact arithmetic.  What rounding adds is told where it
    happens: values and norms are rounded to the format that they are sent in, and odds to multiples of 2^-32.
    """

    @abstractmethod
    def compress(self, x: Array, key: Key) -> Bytes:
        """The message for x, shape (d,): contiguous uint8, on the device if one is in use, where x is then.

        Raises ``DivergedError`` where a number that it sends, or a norm, is not finite or does not fit.
        """

    @abstractmethod
    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        """out += scale * C(x); ``buf`` is where ``out`` is.

        Raises ``MessageError`` if ``buf`` cannot be a message for this d.
        """

    def compress_difference(self, x: Array, y: Array, key: Key) -> Bytes:
        """``compress(x - y, key)``; who looks at a few coordinates subtracts no others."""
        return self.compress(x - y, key)

    def decompress(self, buf: Bytes, d: int, key: Key) -> Array:
        """C(x) as a float64 array of shape (d,)."""
        out = np.zeros_like(buf, dtype=np.float64, shape=d)  # on the device of ``buf``
        self.decompress_add(buf, out, key)
        return out

    @abstractmethod
    def nbytes(self, d: int) -> int | None:
        """Bytes of a message, or None where they depend on the data or the draw."""

    def mean_nbytes(self, d: int, n: int) -> float:
        """Expected bytes of a message of one of n workers."""
        size = self.nbytes(d)
        if size is None:
            raise ConfigError(f"{self} has no expected size: it depends on the vector that is sent.")
        return float(size)

    @abstractmethod
    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """What the papers would charge for this message, of the vector's ``d`` and the sender's ``key``.

        32 bits for each float, whatever format it is sent in; for a quantised value the bits that its
        quantiser needs; nothing for indices.  What entropy coding saves or padding adds does not count.
        """


class Unbiased(Compressor):
    """E C(x) = x and E |C(x) - x|^2 <= omega |x|^2."""

    @abstractmethod
    def omega(self, d: int, n: int) -> float:
        """The variance factor in dimension d (n, the number of workers, matters to PermK alone)."""

    def ab(self, d: int, n: int) -> tuple[float, float]:
        """(A, B) of the AB-inequality over n workers:

        E |mean C_i(a_i) - mean a_i|^2 <= A mean |a_i|^2 - B |mean a_i|^2.

        Independent draws, the default, give (omega/n, 0).
        """
        return self.omega(d, n) / n, 0.0


class Contractive(Compressor):
    """E |C(x) - x|^2 <= (1 - alpha) |x|^2."""

    @abstractmethod
    def alpha(self, d: int, n: int) -> float:
        """The contraction factor in dimension d, in (0, 1] (n matters to a shrunk PermK alone)."""


class Absolute(Compressor):
    """|C(x) - x|^2 <= delta, whatever x."""

    @abstractmethod
    def delta(self, d: int) -> float:
        """The bound on the squared error in dimension d."""
