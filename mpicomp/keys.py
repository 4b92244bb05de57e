"""Keys: the name of a random draw.

Theory of operation.  There is no generator state anywhere.  A draw is a function of (seed, round, worker,
tag), so it cannot be changed by the placement on ranks, the order of evaluation, or a restart.  A *private*
stream differs from worker to worker: it serves roundings and independent masks.  A *shared* stream is equal
on all ranks: it serves MARINA's coin and PermK's permutation.  The receiver of a message holds its key and
recomputes the support that the sender drew, so the support costs no byte on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, ParamSpec, TypeVar
from zlib import crc32

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.base.arrays import Indices, StreamName, Words
from mpicomp.base.checks import MOST_WORKERS, as_integer, as_seed
from mpicomp.base.errors import ConfigError
from mpicomp.kernels.definition.permutation import SMALL

P = ParamSpec("P")
T = TypeVar("T")

SHARED = 0xFFFFFFFF  # the worker lane of shared streams


_kept: list[Callable[[], None]] = []  # each clears the cache of one draw


def cached_draw(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator: cache the last ``maxsize`` results of a draw, which several callers need in turn."""

    def keeping(draw: Callable[P, T]) -> Callable[P, T]:
        cached: Any = lru_cache(maxsize)(draw)
        _kept.append(cached.cache_clear)
        kernels.clear_with_device(cached.cache_clear)  # the draws may lie there
        return cached

    return keeping


def clear_cached_draws() -> None:
    """Empty the caches of all draws decorated with ``cached_draw``."""
    for clear in _kept:
        clear()


class Stream(NamedTuple):
    """One named sequence of random words.  Each method of this class reads it from its first word."""

    seed: int
    lanes: tuple[int, int, int]  # counter lanes above the block number: worker, round, tag

    @property
    def name(self) -> StreamName:
        """The stream's name in the form that kernels take: the seed's two halves, and the lanes."""
        return (self.seed & 0xFFFFFFFF, self.seed >> 32), self.lanes

    def words(self, count: int, start: int = 0) -> Words:
        """Words number ``start``, .., ``start + count - 1``, 32 bits each."""
        return kernels.backend_for_length(count).words(self.name, start, count)

    def uniform(self, count: int) -> NDArray[np.float64]:
        """``count`` numbers in the open interval (0, 1), made of 52 random bits each."""
        w = self.words(2 * count).astype(np.uint64)
        bits = (w[0::2] << np.uint64(20)) | (w[1::2] >> np.uint64(12))
        return (bits.astype(np.float64) + 0.5) * 2.0**-52

    def normals(self, count: int) -> NDArray[np.float64]:
        """``count`` independent standard normal numbers: the normal quantiles of ``uniform``."""
        return scipy.special.ndtri(self.uniform(count))

    def below(self, bound: int) -> int:
        """An integer in {0, .., bound-1}, uniform but for a bias below bound / 2^64.

        Raises ``ConfigError`` for a bound below 1.
        """
        if bound < 1:
            raise ConfigError(f"bound = {bound!r} of a draw; allowed: integers of at least 1.")
        lo, hi = (int(w) for w in self.words(2))
        return ((hi << 32 | lo) * bound) >> 64

    def coin(self, p: float) -> bool:
        """True with probability p, where p is rounded up to a multiple of 2^-32.

        Raises ``ConfigError`` for a p outside [0, 1].
        """
        if not 0 <= p <= 1:
            raise ConfigError(f"p = {p!r} of a coin; allowed: a probability in [0, 1].")
        return _coin(self, p)

    def permutation(self, d: int, start: int, stop: int) -> Indices:
        """pi(start), .., pi(stop-1) for a uniformly random permutation pi of {0, .., d-1}."""
        if d <= SMALL:
            return _whole_permutation(self, d)[start:stop]
        return kernels.backend_for_length(d).permute(self.name, d, start, stop)

    def positions(self, d: int, start: int, stop: int) -> Any:
        """``permutation`` on the run's device, or in host memory if the run uses none; read-only."""
        device = kernels.device()
        if device is not None:
            return device.permute(self.name, d, start, stop)
        return _fixed(self.permutation(d, start, stop))

    def heads(self, d: int, p: Any) -> Any:
        """Sorted indices of those of d coins that fall heads, on the run's device; read-only.

        ``p`` is the probability of heads, rounded up to a multiple of 2^-32: a float for all coins, or an
        array of shape (d,), which must be on the run's device too.
        """
        device = kernels.device()
        if device is not None:
            return device.heads(self.name, d, p)
        return _fixed(np.flatnonzero(self.words(d) < p * 2.0**32))


def odds(p: Any) -> Any:
    """The probability of a coin nearest to p, a number or an array: a multiple of 2^-32, above 0 if p is."""
    return np.where(p > 0, np.maximum(np.rint(p * 2.0**32), 1.0), 0.0) / 2.0**32


def _fixed(indices: Indices) -> Indices:
    """``indices``, made read-only, because callers cache and share them."""
    indices.setflags(write=False)
    return indices


@cached_draw(64)
def _coin(stream: Stream, p: float) -> bool:
    """``Stream.coin``, cached because every worker and the server ask for it."""
    return int(stream.words(1)[0]) < p * 2.0**32


@cached_draw(64)
def _whole_permutation(stream: Stream, d: int) -> Indices:
    """A small permutation in full, cached because sender, receiver and PermK's workers need it in turn."""
    pi = kernels.backend_for_length(d).permute(stream.name, d, 0, d)
    pi.setflags(write=False)
    return pi


@dataclass(frozen=True)
class Key:
    """The name of one message of one round.  Its streams of random numbers are named by a further tag::

        Key(seed=0, round=3, worker=1, n=4).private("coin")  # a stream of worker 1 alone
        Key(seed=0, round=3, worker=1, n=4).shared("coin")  # the same stream on all ranks

    n        number of workers
    worker   the sender; None for the server's broadcast
    message  a text that tells apart several messages of one worker in one round; their draws are independent

    Raises ``ConfigError`` for a number that is not an integer in its range: elsewhere two keys would have the
    same draws.
    """

    seed: int
    round: int
    worker: int | None
    n: int
    message: str = ""

    def __post_init__(self) -> None:
        fields = self.__dict__
        fields["seed"] = as_seed(self.seed)
        fields["round"] = as_integer("round", self.round, least=-1, most=2**32 - 2)  # -1: before round 0
        fields["n"] = as_integer("n", self.n, least=0, most=MOST_WORKERS)
        if self.worker is not None:
            fields["worker"] = as_integer("worker", self.worker, least=0, most=max(self.n, 1) - 1)

    def private(self, tag: str) -> Stream:
        """A stream of this worker alone, or of the server if ``worker`` is None."""
        return self._stream(SHARED - 1 if self.worker is None else self.worker, tag)

    def shared(self, tag: str) -> Stream:
        """A stream that is equal on all ranks."""
        return self._stream(SHARED, tag)

    def of(self, worker: int) -> Key:
        """The key of worker ``worker`` for this round and message."""
        return self._with("worker", worker)

    def before(self) -> Key:
        """This key in the previous round."""
        return self._with("round", self.round - 1)

    def named(self, message: str) -> Key:
        """The key for a further message, or for a further stage of one message."""
        return self._with("message", f"{self.message}/{message}")

    def _with(self, name: str, value: object) -> Key:
        """This key with another field, without the checks: a round makes many of these."""
        key = object.__new__(Key)
        key.__dict__.update(self.__dict__)
        key.__dict__[name] = value
        return key

    def _stream(self, worker: int, tag: str) -> Stream:
        return Stream(self.seed, (worker, self.round & 0xFFFFFFFF, _lane(self.message, tag)))


@lru_cache(1024)
def _lane(message: str, tag: str) -> int:
    return crc32(f"{message}:{tag}".encode())
