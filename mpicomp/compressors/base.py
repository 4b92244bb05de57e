"""The interface of a compressor.

A compressor is a frozen dataclass without state: its fields are its configuration, and
``eval(repr(c)) == c``.  ``compress`` turns a vector into the bytes that are sent.  ``decompress_add`` is the
only way back on every rank, including the sender: all ranks compute with the decoded value.  Sender and
receiver hold the same ``Key``, so whatever follows from the key is not sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.docstrings import explain_inherited
from mpicomp.base.errors import ConfigError
from mpicomp.base.inheritance import hold_plain_values, renew
from mpicomp.base.parts import Parts
from mpicomp.compressors.lending import lend
from mpicomp.compressors.vectors import differing, take_vectors
from mpicomp.keys import Key

# Coordinates are a slice, which needs no index arithmetic, or an array of indices on the run's device.
Coordinates = NDArray[np.int64] | slice
Support = tuple[Coordinates, ...]


class Compressor(ABC):
    """A map C from R^d to bytes, and back; d >= 1.

    The constants of the classes below hold in exact arithmetic.  Values and norms are rounded to the format
    in which they are sent, and probabilities to multiples of 2^-32.  Each class documents what rounding adds.
    Below the least normal number of a format, 6.1e-5 for f2 and 1.2e-38 for f4 and bf16, a value loses digits
    or becomes 0, and the constants need not hold.

    Parameters that several compressors have:

    k       the coordinates that are sent: a count from 1 to d, or a fraction of d below 1
    values  the format of the numbers in messages: "f8", "f4", "f2" or "bf16"
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        explain_inherited(cls)
        if cls.__module__.partition(".")[0] != "mpicomp":
            lend(cls)
            for name, other in _FOLLOWS.items():
                renew(cls, name, other, plain=vars(Compressor)[name])
        else:
            take_vectors(cls)
            hold_plain_values(cls)

    def bound(self, parts: Parts) -> Self:
        """This compressor for vectors with these parts; the same object if it does not depend on parts.

        All ranks bind to the same parts.  A compressor that hands whole vectors to an inner compressor binds
        the inner one too.
        Raises ``ConfigError`` if the configuration does not fit the parts.
        """
        return self

    @abstractmethod
    def compress(self, x: Array, key: Key) -> Bytes:
        """The message for x, shape (d,): contiguous uint8, on the device of x.

        Raises ``DivergedError`` if a number or a norm to be sent is not finite or does not fit its format,
        and ``ConfigError`` if x is no vector of real numbers.
        """

    @abstractmethod
    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        """out += scale * C(x), where ``buf`` is the message for x and lies on the device of ``out``.

        Raises ``MessageError`` if ``buf`` cannot be a message for this d.
        """

    def sum(self, out: Array, key: Key, scale: float = 1.0) -> Sum:
        """Return a ``Sum``, which takes messages of workers i and adds ``scale`` C(x_i) to ``out`` for each.

        ``key`` is the round's; the message of worker i is decoded under ``key.of(i)``.  Compressors that can
        add many short messages in one call override this.
        """
        return Sum(self, out, key, scale)

    @differing
    def compress_difference(self, x: Array, y: Array, key: Key) -> Bytes:
        """``compress(x - y, key)``.  Sparsifiers override this to subtract only the coordinates they send."""
        return self.compress(x - y, key)

    def decompress(self, buf: Bytes, d: int, key: Key) -> Array:
        """C(x) as a float64 array of shape (d,)."""
        out = np.zeros_like(buf, dtype=np.float64, shape=d)  # on the device of ``buf``
        self.decompress_add(buf, out, key)
        return out

    def contractive_variant(self) -> Contractive | None:
        """This compressor with parameters that make it contractive, which errors name; None if none do."""
        return None

    @property
    def selects(self) -> bool:
        """Whether ``coordinates`` can give the coordinates at which a message has values."""
        return type(self).coordinates is not Compressor.coordinates

    def coordinates(self, buf: Bytes, d: int, key: Key) -> Support:
        """The coordinates whose values the message ``buf`` of a vector in R^d has, values of 0 among them.

        They are slices and arrays of indices; none comes twice.  C(x) is 0 elsewhere.
        Raises ``ConfigError`` unless C ``selects``, and ``MessageError`` if ``buf`` has no such positions.
        The values in ``buf`` are not checked: ``decompress_add`` does that.
        """
        raise ConfigError(f"{self} does not choose coordinates, as TopK(k=0.01) does.")

    @abstractmethod
    def nbytes(self, d: int) -> int | None:
        """The size of a message in bytes; None if it depends on the data or the draw.

        Raises ``ConfigError`` if the configuration does not fit d, as a count above d.
        """

    def mean_nbytes(self, d: int, n: int) -> float:
        """The expected size in bytes of a message of one of n workers; of ``Quantized`` up to rounding.

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


# Fast forms of what another method says: a class that has the other one of its own does not inherit them.
_FOLLOWS = {"compress_difference": "compress", "sum": "decompress_add", "decompress": "decompress_add"}


class Sum:
    """Adds the messages of many workers to ``out``, by ``decompress_add``, one after the other."""

    def __init__(self, C: Compressor, out: Array, key: Key, scale: float) -> None:
        self._C, self.out, self._key, self._scale = C, out, key, scale

    def take(self, i: int, message: Bytes) -> None:
        """Add the message of worker i; its bytes need be valid only during this call.

        Raises ``MessageError`` for a bad message.  A subclass may hold messages back, and raise for an
        earlier bad one here or in ``flush``; the error's ``worker`` is then its sender.
        """
        self._C.decompress_add(message, self.out, self._key.of(i), self._scale)

    def flush(self) -> None:
        """Add the messages that were taken but not yet added.  Raises ``MessageError`` as ``take``."""

    def close(self) -> Array:
        """Add the messages held back so far; return ``out``.  Called once; raises as ``take`` does."""
        self.flush()
        return self.out


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
