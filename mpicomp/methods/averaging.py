"""What most methods share: the server averages the workers' messages and broadcasts the average."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpicomp.compressors import Compressor
from mpicomp.keys import Key
from mpicomp.methods.base import Message, Method


@dataclass(frozen=True)
class AveragingMethod(Method):
    """One compressed vector up, their mean down, the rest is ``worker_step`` and ``follow``."""

    @abstractmethod
    def uplink(self, key: Key) -> Compressor:
        """What workers compress with in the round of ``key``."""

    @abstractmethod
    def downlink(self) -> Compressor:
        """What the mean travels in; ``follow`` decodes it."""

    def server_step(self, s: Any, r: Any, ups: Iterable[tuple[Key, Message]], key: Key) -> Message:
        mean, Q = np.zeros_like(getattr(r, self.iterate)), self.uplink(key)
        for k, up in ups:
            Q.decompress_add(up.m, mean, k, 1 / k.n)
        return Message(self.downlink().compress(mean, key))

    def paper_bits(self, up: Message, d: int, key: Key) -> int:
        return self.uplink(key).paper_bits(up.m, d)
