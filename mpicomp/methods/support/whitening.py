"""DCGD+, DIANA+ and ADIANA+: each wraps an unmodified method and gives it a whitening uplink.

Where f_i has the smoothness matrix L_i, worker i compresses L_i^{†1/2} v instead of v, and the server
multiplies what it decodes by L_i^{1/2}.  The error is then measured by 𝓛_i = 𝓛(C_i, L_i), the least c with
E |C_i(x) - x|²_{L_i} ≤ c |x|².  𝓛_i is at most ω λ_max(L_i), and may be far less.  See
docs/methods.md#whitening.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from math import inf, isclose
from typing import Any, ClassVar

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError
from mpicomp.base.given_arrays import as_array
from mpicomp.base.units import one_line
from mpicomp.compressors import Bernoulli, Dithering, Lossless, RandK, Unbiased
from mpicomp.compressors.support.variances import of_blocks
from mpicomp.compressors.support.weighted import Weighted
from mpicomp.keys import Key
from mpicomp.methods.base import Accumulator, Method
from mpicomp.methods.support.averaging import Each
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.roots import decode_symmetric, encode_symmetric, roots, times
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective

MOST = 2**26  # numbers, n d²: half a GiB of matrices on the server


@dataclass(frozen=True)
class Whitened(Unbiased):
    """The compressor v → L_i^{1/2} C_i(L_i^{†1/2} v), for v in the range of L_i; i is the worker of the key.

    roots    L_i^{1/2} by the number of the worker: a worker has its own, the server all
    inverse  L_i^{†1/2} of the worker that compresses; None where nothing is compressed

    If C takes weights and has none, the diagonal of L_i serves as its weights.  Worker and server compute it
    from the root.
    """

    C: Unbiased
    roots: Mapping[int, Array] | Array
    inverse: Array | None = None

    def compress(self, x: Array, key: Key) -> Bytes:
        assert self.inverse is not None
        return self._coder(key).compress(times(self.inverse, x), key)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        white = np.zeros_like(out)
        self._coder(key).decompress_add(buf, white, key, scale)
        out += times(self._root(key), white)

    def _coder(self, key: Key) -> Unbiased:
        if not isinstance(self.C, Weighted):
            return self.C
        root = self._root(key)
        return _fitted(self.C, np.einsum("jl,jl->j", root, root).tobytes())

    def _root(self, key: Key) -> Array:
        assert key.worker is not None
        return self.roots[key.worker]

    def nbytes(self, d: int) -> int | None:
        return self.C.nbytes(d)

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        return self.C.paper_bits(buf, d, key)

    def omega(self, d: int, n: int) -> float:
        return inf  # there is no useful bound in the norm that is not whitened


class WhitenedMethod(Method):
    """The method ``plain(Whitened(Q, ..))``, after a round 0 in which worker i sends L_i^{1/2}.

    The root travels once, as its lower triangle in f8, d (d + 1)/2 numbers.  The ledger counts it in the
    uplink, and once more in ``set_up_bytes``.  Round k + 1 is round k of the plain method.  Worker and server
    hold the same bits of each root.

    The server keeps all n roots.  Raises ``ConfigError`` if n d² exceeds 2^26.  Within this limit are d = 300
    with 700 workers, and d = 2500 with 10.
    """

    on_device: ClassVar[bool] = False  # d is small where d² numbers are sent
    needs_function: ClassVar[bool] = True
    needs_also: ClassVar[str] = "smoothness matrices"
    separable: ClassVar[bool] = False
    setup_rounds: ClassVar[int] = 1

    Q: Unbiased
    down: Lossless

    @dataclass
    class Server:
        roots: Array  # (n, d, d)

    def server(self, x0: Array) -> Any:
        s = super().server(x0)
        s.roots = np.empty((0, x0.size, x0.size))  # until round 0
        return s

    def worker(self, x0: Array) -> Any:
        w = super().worker(x0)
        w.root = w.inverse = np.empty((0, x0.size))  # until round 0
        return w

    @abstractmethod
    def plain(self, Q: Unbiased) -> Method:
        """The method without whitening, whose workers compress by Q."""

    def worker_step(self, w: Any, r: Any, f: Objective, key: Key) -> Any:
        if key.round == 0:
            d = getattr(r, self.iterate).size
            check_size(type(self).__name__, d, key.n)
            root, w.inverse = roots(f.smoothness_matrix(), d)
            message = encode_symmetric(root)
            w.root = decode_symmetric(message, d)
            return _last(self.Up, message)
        Q = Whitened(self.Q, {key.worker: w.root}, w.inverse)  # type: ignore[dict-item]
        return self.plain(Q).worker_step(w, r, f, key.before())

    def server_step(self, s: Any, r: Any, key: Key) -> Accumulator:
        if key.round > 0:
            step = self.plain(Whitened(self.Q, s.roots)).server_step(s, r, key.before())
            return Each(lambda k, up: step.take(k.before(), up), step.close)
        d, last = getattr(r, self.iterate).size, fields(self.Up)[-1].name
        received: list[Array] = []

        def close() -> Any:
            s.roots = np.stack(received)
            return _last(self.Down, np.empty(0, np.uint8))

        return Each(lambda k, up: received.append(decode_symmetric(getattr(up, last), d)), close)

    def replica_step(self, r: Any, broadcast: Any, key: Key) -> None:
        if key.round > 0:
            self.plain(self.Q).replica_step(r, broadcast, key.before())

    def ends_step(self, r: Any, key: Key) -> bool:
        return key.round > 0

    def paper_bits(self, up: Any, d: int, key: Key) -> int:
        return 32 * d * (d + 1) // 2 if key.round == 0 else self.plain(self.Q).paper_bits(up, d, key.before())

    def paper_bits_down(self, broadcast: Any, d: int, key: Key) -> int:
        return 0 if key.round == 0 else self.plain(self.Q).paper_bits_down(broadcast, d, key.before())

    def spread(self, c: Constants, d: int, n: int) -> tuple[float, float]:
        """(𝓛_max/n, or 𝓛_max if the workers' draws depend on each other, by Jensen's inequality; ω_max).

        𝓛_max and ω_max are the largest 𝓛_i and ω of the workers' compressors.

        Raises ``ConfigError`` if the problem gives no diagonals of the L_i.
        """
        check_size(type(self).__name__, d, n)
        if c.diagonals is None:
            asked = " and ".join(self.by_theory)
            raise ConfigError(
                f"{type(self).__name__} takes its step sizes from the smoothness matrices of the f_i, and of "
                f"those this problem gives no diagonals: give {asked} as numbers."
            )
        pairs = list(zip(_checked(c.diagonals(), n, d), c.L_i, strict=True))
        largest = max(variance(self.Q, diagonal, top, n) for diagonal, top in pairs)
        fitted = [
            self.Q.fitted(diagonal) if isinstance(self.Q, Weighted) else self.Q for diagonal, _ in pairs
        ]
        a, b = self.Q.ab(d, n)
        independent = isclose(a * n, self.Q.omega(d, n)) and b == 0
        return largest / n if independent else largest, max(Q.omega(d, n) for Q in fitted)


def _checked(diagonals: Any, n: int, d: int) -> Array:
    """The ``diagonals`` of a problem's ``Constants``, which may be of the user's own, as an array.

    Raises ``ConfigError`` unless they have the shape (n, d), and are finite and not negative.
    """
    found = as_array("the result of the function diagonals of the problem's Constants", diagonals)
    if found.shape != (n, d) or found.dtype.kind not in "fiu":
        raise ConfigError(
            f"the function diagonals of the problem's Constants gives {one_line(diagonals)}; allowed: an "
            f"array of numbers of shape ({n}, {d}), a diagonal for each worker."
        )
    if not (np.isfinite(found).all() and (found >= 0).all()):
        raise ConfigError(
            "the function diagonals of the problem's Constants gives entries that are negative or not "
            "finite; allowed: the diagonals of matrices L_i, which have none."
        )
    return found.astype(np.float64)


class WhitenedEstimate(WhitenedMethod, EstimatingMethod):
    """A ``WhitenedMethod`` whose plain method is an ``EstimatingMethod``."""

    def estimate(self, r: Any, broadcast: Any, key: Key) -> None:
        if key.round > 0:
            self.plain(self.Q).estimate(r, broadcast, key.before())

    @abstractmethod
    def plain(self, Q: Unbiased) -> EstimatingMethod: ...


def variance(Q: Unbiased, diagonal: Array, top: float, n: int) -> float:
    """A bound on 𝓛(Q, L) for every L with this ``diagonal`` and the largest eigenvalue ``top``."""
    d = diagonal.size
    omega = Q.omega(d, n)
    match Q:
        case Weighted():
            Q = Q.fitted(diagonal)
            return min(Q.variance(diagonal), Q.omega(d, n) * top)
        case Bernoulli():
            return omega * float(diagonal.max())
        case RandK(layout="uniform"):  # 𝓛 = λ_max(d Diag(L) - L) ω/(d - 1) is at most this
            return omega * min(top, float(diagonal.max()) * d / max(1, d - 1))
        case Dithering(p="2"):  # equal steps 1/s
            return min(float(of_blocks(diagonal, np.full(d, 1 / Q.s), [0])[0]), omega * top)
    return omega * top


def check_size(method: str, d: int, n: int) -> None:
    """Raise ``ConfigError``, which names ``method``, if n d² exceeds ``MOST``."""
    if n * d * d > MOST:
        raise ConfigError(
            f"{method} keeps a matrix of d² numbers for each worker on the server: with d = {d} and n = {n} "
            f"that is {n * d * d:.2g}, and at most {MOST:.2g} are allowed. Take fewer workers, or the method "
            "without the plus."
        )


@lru_cache(maxsize=512)
def _fitted(C: Weighted, diagonal: bytes) -> Weighted:
    """C with the weights ``diagonal``; cached because both ends ask for it in every round."""
    return C.fitted(np.frombuffer(diagonal))


def _last(record: type, message: Bytes) -> Any:
    """A ``record`` whose last field is ``message``; its other fields are empty."""
    return record(*[np.empty(0, np.uint8) for _ in fields(record)[1:]], message)
