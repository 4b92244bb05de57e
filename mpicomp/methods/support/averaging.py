"""What most methods share: the server averages the workers' messages and broadcasts the average."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np

from mpicomp.compressors import Compressor
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Message, Method


class AveragingMethod(Method):
    """One compressed vector up, their mean down, the rest is ``worker_step`` and ``follow``."""

    @property
    @abstractmethod
    def down(self) -> Compressor:
        """What the mean travels in; ``follow`` decodes it."""

    @abstractmethod
    def uplink(self, key: Key) -> Compressor:
        """What workers compress with in the round of ``key``."""

    def weight(self, key: Key) -> float:
        """What each message counts in the mean of the round of ``key``."""
        return 1 / key.n

    def server_step(self, s: Any, r: Any, ups: Iterable[tuple[Key, Message]], key: Key) -> Message:
        m = mean(ups, self.uplink(key), getattr(r, self.iterate), self.weight(key))
        return Message(self.down.compress(m, key))

    def paper_bits(self, up: Message, d: int, key: Key) -> int:
        return self.uplink(key).paper_bits(up.m, d, key)

    def paper_bits_down(self, broadcast: Message, d: int, key: Key) -> int:
        return self.down.paper_bits(broadcast.m, d, key)


def mean(ups: Iterable[tuple[Key, Message]], Q: Compressor, like: Array, weight: float) -> Array:
    """The workers' usual messages, each counting ``weight``: their mean for 1/n."""
    total = np.zeros_like(like)
    for k, up in ups:
        Q.decompress_add(up.m, total, k, weight)
    return total


def means(ups: Iterable[tuple[Key, Any]], Q: Compressor, like: Array, *names: str) -> list[Array]:
    """The workers' means of several messages, the fields ``names`` of an ``Up``, each with its own draws."""
    sums = [np.zeros_like(like) for _ in names]
    for k, up in ups:
        for name, mean in zip(names, sums, strict=True):
            Q.decompress_add(getattr(up, name), mean, k.named(name), 1 / k.n)
    return sums
