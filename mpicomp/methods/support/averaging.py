"""Methods whose server averages the workers' messages and broadcasts the average."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from mpicomp.base.bits import Bytes
from mpicomp.compressors import Compressor
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Message, Method


class AveragingMethod(Method):
    """Each worker sends one compressed vector.  The server answers to their mean: with the mean, compressed,
    unless a subclass overrides ``answer``.

    down  the compressor of the server's answer, which ``follow`` decodes
    """

    down: Compressor

    @abstractmethod
    def uplink(self, key: Key) -> Compressor:
        """The compressor of the workers in the round of ``key``."""

    def entries(self, d: int, key: Key) -> int:
        """The length of the vector that a worker sends in the round of ``key``; the iterate has d."""
        return d

    def weight(self, key: Key) -> float:
        """The weight of each message in the mean of the round of ``key``."""
        return 1 / key.n

    def server_step(self, s: Any, r: Any, ups: Iterable[tuple[Key, Message]], key: Key) -> Message:
        m = mean(ups, self.uplink(key), getattr(r, self.iterate), key, self.weight(key))
        return Message(self.answer(s, r, m, key))

    def answer(self, s: Any, r: Any, m: Array, key: Key) -> Bytes:
        """What goes down, where the workers' messages have the mean ``m``; it changes ``s`` alone."""
        return self.down.compress(m, key)

    def paper_bits(self, up: Message, d: int, key: Key) -> int:
        return self.uplink(key).paper_bits(up.m, d, key)

    def paper_bits_down(self, broadcast: Message, d: int, key: Key) -> int:
        return self.down.paper_bits(broadcast.m, d, key)


def mean(ups: Iterable[tuple[Key, Message]], Q: Compressor, like: Array, key: Key, weight: float) -> Array:
    """The sum of the workers' messages of the round of ``key``, each times ``weight``: for 1/n their mean.

    Shaped like ``like``.
    """
    total = np.zeros_like(like)
    Q.decompress_add_all(_by_worker(ups), total, key, weight)
    return total


def _by_worker(ups: Iterable[tuple[Key, Message]]) -> Iterator[tuple[int, Bytes]]:
    """The workers and their messages."""
    for k, up in ups:
        assert k.worker is not None
        yield k.worker, up.m


def means(ups: Iterable[tuple[Key, Any]], Q: Compressor, like: Array, *names: str) -> list[Array]:
    """The means over workers of the fields ``names`` of an ``Up``; each field has draws of its own."""
    sums = [np.zeros_like(like) for _ in names]
    for k, up in ups:
        for name, mean in zip(names, sums, strict=True):
            Q.decompress_add(getattr(up, name), mean, k.named(name), 1 / k.n)
    return sums
