"""Keys: the name of a random draw.

Theory of operation.  There is no generator state anywhere.  A draw is a function of (seed, round,
worker, tag), so neither placement on ranks, nor the order of evaluation, nor a restart can change
it.  A *private* stream differs from worker to worker and serves roundings and independent masks.  A
*shared* stream is the same on every rank: MARINA's coin, PermK's permutation.  Whoever holds the key
of a message can recompute the support its sender drew, so that support costs no byte on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar
from zlib import crc32

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.kernels.definition.permutation import SMALL, Indices
from mpicomp.kernels.definition.philox import StreamName, Words

P = ParamSpec("P")
T = TypeVar("T")

SHARED = 0xFFFFFFFF  # the worker lane of a stream that all ranks hold in common


_kept: list[Callable[[], None]] = []  # each clears what one function keeps


def cached_draw(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A draw whose last ``maxsize`` results are kept, because several ask for the same one in turn."""

    def keeping(draw: Callable[P, T]) -> Callable[P, T]:
        cached: Any = lru_cache(maxsize)(draw)
        _kept.append(cached.cache_clear)
        return cached

    return keeping


def clear_cached_draws() -> None:
    """Drop the draws that are kept: whoever asks next draws anew."""
    for clear in _kept:
        clear()


@dataclass(frozen=True)
class Stream:
    """One named sequence of random words; every method starts at its first word."""

    seed: int
    lanes: tuple[int, int, int]  # counter lanes above the block number: worker, round, tag

    @property
    def name(self) -> StreamName:
        """What kernels know it by."""
        return (self.seed & 0xFFFFFFFF, self.seed >> 32), self.lanes

    def words(self, count: int, start: int = 0) -> Words:
        """``count`` 32-bit words from number ``start`` on."""
        return kernels.sized(count).words(self.name, start, count)

    def uniform(self, count: int) -> NDArray[np.float64]:
        """``count`` numbers in the open interval (0, 1), 52 random bits each."""
        w = self.words(2 * count).astype(np.uint64)
        bits = (w[0::2] << np.uint64(20)) | (w[1::2] >> np.uint64(12))
        return (bits.astype(np.float64) + 0.5) * 2.0**-52

    def normals(self, count: int) -> NDArray[np.float64]:
        """``count`` independent standard normal numbers: the normal quantiles of ``uniform``."""
        return scipy.special.ndtri(self.uniform(count))

    def below(self, bound: int) -> int:
        """An integer in {0, .., bound-1}; bias below bound / 2^64."""
        lo, hi = (int(w) for w in self.words(2))
        return ((hi << 32 | lo) * bound) >> 64

    def coin(self, p: float) -> bool:
        """True with probability p, rounded up to a multiple of 2^-32."""
        return _coin(self, p)

    def permutation(self, d: int, start: int, stop: int) -> Indices:
        """pi(start), .., pi(stop-1) for a uniformly random permutation pi of {0, .., d-1}."""
        if d <= SMALL:
            return _whole_permutation(self, d)[start:stop]
        return kernels.sized(d).permute(self.name, d, start, stop)

    def positions(self, d: int, start: int, stop: int) -> Any:
        """The same where the vectors of a run are: on the device in use, if there is one."""
        device = kernels.device()
        if device is not None:
            return device.permute(self.name, d, start, stop)
        return _fixed(self.permutation(d, start, stop))

    def heads(self, d: int, p: Any) -> Any:
        """Which of d coins fall on heads, increasing; there likewise.

        ``p``: the probability, rounded up to a multiple of 2^-32, a float or, there too, an array of them.
        """
        device = kernels.device()
        if device is not None:
            return device.heads(self.name, d, p)
        return _fixed(np.flatnonzero(self.words(d) < p * 2.0**32))


def odds(p: Any) -> Any:
    """The nearest to p, a number or an array, that a coin can have: a multiple of 2^-32, 0 for 0 alone."""
    return np.where(p > 0, np.maximum(np.rint(p * 2.0**32), 1.0), 0.0) / 2.0**32


def _fixed(indices: Indices) -> Indices:
    """The same, not to be written to: who asked for them may keep them for others."""
    indices.setflags(write=False)
    return indices


@cached_draw(64)
def _coin(stream: Stream, p: float) -> bool:
    """One toss, kept because every worker and the server ask for it."""
    return int(stream.words(1)[0]) < p * 2.0**32


@cached_draw(64)
def _whole_permutation(stream: Stream, d: int) -> Indices:
    """All of a small permutation, kept because sender, receiver and PermK's workers ask in turn."""
    pi = kernels.sized(d).permute(stream.name, d, 0, d)
    pi.setflags(write=False)
    return pi


@dataclass(frozen=True)
class Key:
    """The common part of the names of one round's draws.

    ``worker`` is None where no worker is meant (the server's broadcast).  ``message`` tells apart
    several messages of one worker in one round, whose draws must be independent.
    """

    seed: int
    round: int
    worker: int | None
    n: int
    message: str = ""

    def private(self, tag: str) -> Stream:
        """A stream of this worker's own."""
        return self._stream(SHARED - 1 if self.worker is None else self.worker, tag)

    def shared(self, tag: str) -> Stream:
        """The stream that every rank draws alike."""
        return self._stream(SHARED, tag)

    def of(self, worker: int) -> Key:
        """The same round's key as worker ``worker`` holds it."""
        return Key(self.seed, self.round, worker, self.n, self.message)

    def before(self) -> Key:
        """The key of the round before."""
        return Key(self.seed, self.round - 1, self.worker, self.n, self.message)

    def named(self, message: str) -> Key:
        """The key for a further message, or for a further stage of one message."""
        return Key(self.seed, self.round, self.worker, self.n, f"{self.message}/{message}")

    def _stream(self, worker: int, tag: str) -> Stream:
        lane = crc32(f"{self.message}:{tag}".encode())
        return Stream(self.seed, (worker, self.round & 0xFFFFFFFF, lane))
