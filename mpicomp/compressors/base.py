"""The interface of a compressor.

A compressor is a frozen dataclass without state: its fields are its configuration, and
``eval(repr(c)) == c``.  ``compress`` turns a vector into the bytes that are sent.  ``decompress_add`` is the
only way back on every rank, including the sender: all ranks compute with the decoded value.  Sender and
receiver hold the same ``Key``, so whatever follows from the key is not sent.
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

    The constants of the classes below hold in exact arithmetic.  Values and norms are rounded to the format
    in which they are sent, and probabilities to multiples of 2^-32.  Each class documents what rounding adds.
    """

    @abstractmethod
    def compress(self, x: Array, key: Key) -> Bytes:
        """The message for x, shape (d,): contiguous uint8, on the device of x.

        Raises ``DivergedError`` if a number or a norm to be sent is not finite or does not fit its format.
        """

    @abstractmethod
    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        """out += scale * C(x), where ``buf`` is the message for x and lies on the device of ``out``.

        Raises ``MessageError`` if ``buf`` cannot be a message for this d.
        """

    def compress_difference(self, x: Array, y: Array, key: Key) -> Bytes:
        """``compress(x - y, key)``.  Sparsifiers override this to subtract only the coordinates they send."""
        return self.compress(x - y, key)

    def decompress(self, buf: Bytes, d: int, key: Key) -> Array:
        """C(x) as a float64 array of shape (d,)."""
        out = np.zeros_like(buf, dtype=np.float64, shape=d)  # on the device of ``buf``
        self.decompress_add(buf, out, key)
        return out

    @abstractmethod
    def nbytes(self, d: int) -> int | None:
        """The size of a message in bytes; None if it depends on the data or the draw."""

    def mean_nbytes(self, d: int, n: int) -> float:
        """The expected size in bytes of a message of one of n workers.

        Raises ``ConfigError`` if it depends on the data.
        """
        size = self.nbytes(d)
        if size is None:
            raise ConfigError(f"{self} has no expected size: it depends on the vector that is sent.")
        return float(size)

    @abstractmethod
    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """The size in bits that the papers count for the message ``buf`` of a vector in R^d.

        It is 32 bits for each float, in whatever format it is sent; for a quantised value the bits that its
        quantiser needs; nothing for indices.  Savings by entropy coding and padding are not counted.
        """


class Unbiased(Compressor):
    """A compressor with E C(x) = x and E |C(x) - x|^2 <= omega |x|^2."""

    @abstractmethod
    def omega(self, d: int, n: int) -> float:
        """The variance factor in dimension d; n, the number of workers, matters only to PermK."""

    def ab(self, d: int, n: int) -> tuple[float, float]:
        """(A, B) of the AB-inequality over n workers:

        E |mean C_i(a_i) - mean a_i|^2 <= A mean |a_i|^2 - B |mean a_i|^2.

        The default, (omega/n, 0), holds for independent draws.
        """
        return self.omega(d, n) / n, 0.0


class Contractive(Compressor):
    """A compressor with E |C(x) - x|^2 <= (1 - alpha) |x|^2."""

    @abstractmethod
    def alpha(self, d: int, n: int) -> float:
        """The contraction factor in dimension d, in (0, 1]; n matters only to a shrunk PermK."""


class Absolute(Compressor):
    """A compressor with |C(x) - x|^2 <= delta for all x."""

    @abstractmethod
    def delta(self, d: int) -> float:
        """The bound on the squared error in dimension d."""


def check_count(k: int | float, name: str = "k") -> None:
    """Raise ``ConfigError`` unless k is a positive count or a fraction in (0, 1)."""
    whole = isinstance(k, int) and not isinstance(k, bool) and k >= 1
    if not (whole or (isinstance(k, float) and 0 < k < 1)):
        raise ConfigError(
            f"{name}={k!r}; allowed: a count, an integer from 1 to d, or a fraction, a float between 0 and 1."
        )


def check_whole(name: str, value: int) -> None:
    """Raise ``ConfigError`` unless ``value`` is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name}={value!r}; allowed: a positive integer.")


def resolve_count(k: int | float, d: int) -> int:
    """The count that k stands for in dimension d: k, or max(1, round(k d)) for a fraction k.

    Raises ``ConfigError`` if it exceeds d.
    """
    count = k if isinstance(k, int) else max(1, round(k * d))
    if count > d:
        raise ConfigError(f"k={k} exceeds the dimension d={d}; allowed: 1 to {d}, or a fraction below 1.")
    return count


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise ``ConfigError`` unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise ConfigError(f"{name}={value!r}; allowed: {', '.join(map(repr, allowed))}.")


def check_probability(name: str, value: float) -> None:
    """Raise ``ConfigError`` unless 0 < value <= 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ConfigError(f"{name}={value!r}; allowed: a probability above 0 and at most 1.")
