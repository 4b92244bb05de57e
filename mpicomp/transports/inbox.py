"""Memory for messages that arrive: the host's, or that of a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpicomp.coding.bits import Bytes


def empty(size: int, device: Any) -> Bytes:
    """``size`` bytes on ``device``, the kernels of one, or in the host's memory if that is None."""
    return np.empty(size, np.uint8) if device is None else device.xp.empty(size, dtype=np.uint8)


class Inbox:
    """Room for one message at a time, on the host and on each device that is asked for."""

    def __init__(self) -> None:
        self._memory: dict[Any, Bytes] = {}

    def room(self, size: int, filled: int, device: Any) -> Bytes:
        """At least ``size`` bytes on ``device``; of a message begun there the first ``filled`` are kept."""
        memory = self._memory.get(device)
        if memory is None:
            memory = self._memory[device] = empty(size, device)
        elif size > memory.size:
            grown = empty(max(size, 2 * memory.size), device)
            grown[:filled] = memory[:filled]
            memory = self._memory[device] = grown
        return memory
