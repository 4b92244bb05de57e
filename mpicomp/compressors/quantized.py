"""Composition: a sparsifier chooses the coordinates, a quantiser codes their values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes, expect_length
from mpicomp.base.checks import check_count, resolve_count
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Parts
from mpicomp.codecs.indices import decode_indices, encode_indices
from mpicomp.compressors.base import Contractive, Support, Unbiased
from mpicomp.compressors.importance import Importance
from mpicomp.compressors.layered import Layered
from mpicomp.compressors.sign import Sign
from mpicomp.compressors.support.sparsifier import Sparsifier, gather, scatter_add, size
from mpicomp.compressors.support.weighted import Weighted
from mpicomp.compressors.two_means import TwoMeans
from mpicomp.kernels import join
from mpicomp.kernels.index_layouts import index_nbytes
from mpicomp.keys import Key


@dataclass(frozen=True)
class Quantized(Unbiased):
    """C(x) = Q on the values that S keeps; 1 + omega = (1 + omega_S)(1 + omega_Q).

    omega_Q is taken in the dimension of the largest support.

    omega is attained if all supports are equally large and x attains omega_Q on each: for RandK with Natural
    at |x_j| = 4/3, or with coarse Dithering at equal |x_j|.  Otherwise, as for Bernoulli, it is a bound.

    S  the sparsifier: RandK, PermK, Bernoulli or Lazy
    Q  the quantiser of the values that S keeps, such as Natural() or Dithering(s=7)
    """

    paper: ClassVar[str] = "Horváth et al., arXiv 1905.10988, on compositions"

    S: Sparsifier
    Q: Unbiased

    def __post_init__(self) -> None:
        if not isinstance(self.S, Sparsifier):
            raise ConfigError(
                f"S={self.S}; allowed: RandK, PermK, Bernoulli, Lazy (for TopK: QuantizedTopK)."
            )
        check_quantizer(self.Q)

    def compress(self, x: Array, key: Key) -> Bytes:
        values = gather(x, self.S.support(x.size, key))
        if values.size == 0:
            return kernels.to_same_place(x, np.empty(0, np.uint8))
        return self.Q.compress(values, key.named("quantized"))

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        support = self.S.support(out.size, key)
        count = size(support)
        if count == 0:
            expect_length(buf, 0, self)
        else:
            values = self.Q.decompress(buf, count, key.named("quantized"))
            scatter_add(out, support, values, scale * self.S.gain(out.size, key))

    def coordinates(self, buf: Bytes, d: int, key: Key) -> Support:
        return self.S.support(d, key)

    def nbytes(self, d: int) -> int | None:
        return None if self.S.nbytes(d) is None else self.Q.nbytes(self.S.max_count(d, 1))

    def mean_nbytes(self, d: int, n: int) -> float:
        # The size of Q's message is affine in the count, up to rounding to bytes.
        sends = self.S.sends(d, n)
        count = max(1, round(d / (1 + self.S.omega(d, n)) / sends))
        return sends * self.Q.mean_nbytes(count, n)

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """Q's count for the values on the support; 0 if the support is empty."""
        count = size(self.S.support(d, key))
        return self.Q.paper_bits(buf, count, key.named("quantized")) if count else 0

    def omega(self, d: int, n: int) -> float:
        return (1 + self.S.omega(d, n)) * (1 + self.Q.omega(self.S.max_count(d, n), n)) - 1

    def ab(self, d: int, n: int) -> tuple[float, float]:
        # The quantisers' own draws are independent, so they add omega_Q/n of each message's energy.
        a, b = self.S.ab(d, n)
        return a + self.Q.omega(self.S.max_count(d, n), n) * (1 + self.S.omega(d, n)) / n, b


@dataclass(frozen=True)
class QuantizedTopK(Contractive):
    """C(x) = Q(x on its k largest entries) / (1 + omega_Q); alpha = k / (d (1 + omega_Q)).

    omega_Q is taken in dimension k.  alpha is attained at equal |x_j| if omega_Q is attained there.
    ``Sign`` and ``TwoMeans`` are contractive, and nothing is divided: alpha = alpha_Q k/d, since
    |C(x) - x|² = |x|² - |x_K|² + |Q(x_K) - x_K|² for the k largest entries x_K.  If the magnitudes in x_K are
    much alike, the error is far below that bound: for ``Sign``, |C(x) - x|² = |x|² - |x_K|_1²/k.
    Wire: the index code of (d, k), then Q's message.

    Q  the quantiser of the k values, such as Natural() or Dithering(s=7); or Sign(), one bit for each, or
       TwoMeans(), 1.72 bits
    """

    paper: ClassVar[str] = "Beznosikov et al., On biased compression, arXiv 2002.12410"

    k: int | float
    Q: Unbiased | Sign | TwoMeans

    def __post_init__(self) -> None:
        check_count("k", self.k)
        if not isinstance(self.Q, Sign | TwoMeans):
            check_quantizer(self.Q, ", or Sign() or TwoMeans()")

    def compress(self, x: Array, key: Key) -> Bytes:
        kept = kernels.backend_for(x).top_k(x, resolve_count(self.k, x.size))
        return join(encode_indices(kept, x.size), self.Q.compress(gather(x, (kept,)), key.named("quantized")))

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        d, k = out.size, resolve_count(self.k, out.size)
        split = index_nbytes(d, k)
        kept = decode_indices(buf[:split], d, k)
        values = self.Q.decompress(buf[split:], k, key.named("quantized"))
        scatter_add(out, (kept,), values, scale / inflation(self.Q, k, key.n))

    def coordinates(self, buf: Bytes, d: int, key: Key) -> Support:
        k = resolve_count(self.k, d)
        return (decode_indices(buf[: index_nbytes(d, k)], d, k),)

    def nbytes(self, d: int) -> int | None:
        k = resolve_count(self.k, d)
        coded = self.Q.nbytes(k)
        return None if coded is None else index_nbytes(d, k) + coded

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """Q's count for k values."""
        k = resolve_count(self.k, d)
        return self.Q.paper_bits(buf[index_nbytes(d, k) :], k, key.named("quantized"))

    def alpha(self, d: int, n: int) -> float:
        k = resolve_count(self.k, d)
        if isinstance(self.Q, Sign | TwoMeans):
            return k / d * self.Q.alpha(k, n)
        return k / (d * inflation(self.Q, k, n))


@dataclass(frozen=True)
class Shrunk(Contractive):
    """C(x) = U(x) / (1 + omega) for an unbiased U: alpha = 1/(1 + omega), tight if omega is tight.

    U  the compressor that is scaled
    """

    paper: ClassVar[str] = "Beznosikov et al., On biased compression, arXiv 2002.12410"

    U: Unbiased

    def __post_init__(self) -> None:
        if not isinstance(self.U, Unbiased):
            raise ConfigError(f"U={self.U}; allowed: an unbiased compressor, such as RandK(k=0.1).")
        _check_weights("U", self.U)

    def bound(self, parts: Parts) -> Self:
        return replace(self, U=self.U.bound(parts))

    def compress(self, x: Array, key: Key) -> Bytes:
        return self.U.compress(x, key)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        self.U.decompress_add(buf, out, key, scale / (1 + self.U.omega(out.size, key.n)))

    @property
    def selects(self) -> bool:
        return self.U.selects

    def coordinates(self, buf: Bytes, d: int, key: Key) -> Support:
        return self.U.coordinates(buf, d, key)

    def nbytes(self, d: int) -> int | None:
        return self.U.nbytes(d)

    def mean_nbytes(self, d: int, n: int) -> float:
        return self.U.mean_nbytes(d, n)

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """The bits that U counts for the message."""
        return self.U.paper_bits(buf, d, key)

    def alpha(self, d: int, n: int) -> float:
        return 1 / (1 + self.U.omega(d, n))


def inflation(Q: Unbiased | Sign | TwoMeans, k: int, n: int) -> float:
    """1 + omega_Q for k values, by which the values are divided; 1 for a contractive Q."""
    return 1.0 if isinstance(Q, Sign | TwoMeans) else 1 + Q.omega(k, n)


def check_quantizer(Q: Unbiased, also: str = "") -> None:
    """Raise ``ConfigError`` unless Q is unbiased, sends every coordinate of its input, and needs no parts.

    ``also`` names what else is allowed, at the end of the error's message.
    """
    if not isinstance(Q, Unbiased) or isinstance(Q, Sparsifier | Importance | Layered | Quantized):
        raise ConfigError(
            f"Q={Q}; allowed: an unbiased quantiser, such as Natural() or Dithering(s=7){also}."
        )
    _check_weights("Q", Q)


def _check_weights(name: str, C: Unbiased) -> None:
    """Raise ``ConfigError`` if C has a weight 0: it never sends that coordinate, so it is biased."""
    if isinstance(C, Weighted) and C.weights is not None and 0 in C.weights:
        raise ConfigError(
            f"{name}={type(C).__name__}(..) has weights of 0, and never sends those coordinates; allowed: "
            "weights above 0."
        )
