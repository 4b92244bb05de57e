"""Sparsifiers whose support follows from the key: messages have values only, no indices."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.formats import WIDTH
from mpicomp.codecs.values import decode_values, encode_values
from mpicomp.compressors.base import Support as Support
from mpicomp.compressors.base import Unbiased
from mpicomp.keys import Key


class Sparsifier(Unbiased):
    """C(x)_j = gain * x_j on a random support and 0 elsewhere.

    The sender sends x_j and the receiver applies the gain, so a gain of 1 adds no rounding.  ``compress``
    reads only the coordinates to be sent: it raises ``DivergedError`` if one of them is not finite, and does
    not notice an infinity in another coordinate.  Subclasses are dataclasses with a field ``values``, the
    format in which values are sent.
    """

    values: str

    @abstractmethod
    def support(self, d: int, key: Key) -> Support:
        """The coordinates that the worker of ``key`` sends in the round: slices and arrays of indices."""

    @abstractmethod
    def gain(self, d: int, key: Key) -> float:
        """The factor that makes C unbiased: 1 / P(j in support)."""

    @abstractmethod
    def max_count(self, d: int, n: int) -> int:
        """The largest number of coordinates in a support."""

    def sends(self, d: int, n: int) -> float:
        """The probability that the support is not empty."""
        return 1.0

    def compress(self, x: Array, key: Key) -> Bytes:
        return encode_values(gather(x, self.support(x.size, key)), self.values)

    def compress_difference(self, x: Array, y: Array, key: Key) -> Bytes:
        support = self.support(x.size, key)
        return encode_values(gather(x, support) - gather(y, support), self.values)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        support = self.support(out.size, key)
        values = decode_values(buf, size(support), self.values)
        scatter_add(out, support, values, scale * self.gain(out.size, key))

    def coordinates(self, buf: Bytes, d: int, key: Key) -> Support:
        return self.support(d, key)

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """32 bits for each coordinate that is kept."""
        return 32 * (len(buf) // WIDTH[self.values])


def window(start: int, count: int, d: int) -> Support:
    """The cyclic window of ``count`` coordinates from ``start`` on, as at most two slices."""
    wrapped = max(0, start + count - d)
    pieces = (slice(start, start + count - wrapped), slice(0, wrapped))
    return tuple(p for p in pieces if p.stop > p.start)


def size(support: Support) -> int:
    """The number of coordinates in ``support``."""
    return sum(p.stop - p.start if isinstance(p, slice) else p.size for p in support)


def gather(x: Array, support: Support) -> Array:
    """The values of x on ``support``, in the order of the support."""
    parts = [x[p] if isinstance(p, slice) else kernels.backend_for(x).gather(x, p) for p in support]
    return parts[0] if len(parts) == 1 else np.concatenate([x[:0], *parts])


def scatter_add(out: Array, support: Support, values: Array, scale: float) -> None:
    """out[support] += scale * values.  A support must not contain a coordinate twice."""
    on, start = kernels.backend_for(out, values), 0
    for p in support:
        stop = start + (p.stop - p.start if isinstance(p, slice) else p.size)
        if isinstance(p, slice):
            on.add_scaled(out[p], values[start:stop], scale)
        else:
            on.scatter_add(out, p, values[start:stop], scale)
        start = stop
