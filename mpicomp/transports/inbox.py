"""Reusable buffers for messages that arrive, in the host's memory or on a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpicomp.base.bits import Bytes

_KEPT = 8  # buffers kept on the host, and on each device


class Inbox:
    """A pool of buffers, on the host and on each device that has been asked for."""

    def __init__(self) -> None:
        self._free: dict[Any, list[Bytes]] = {}
        self._last: tuple[Bytes, Any] | None = None  # of ``renew``
        self._abandoned: list[Bytes] = []

    def take(self, size: int, device: Any) -> Bytes:
        """Take a buffer of at least ``size`` bytes on ``device`` (its kernels), or on the host if it is None.

        End its use with ``give_back``.
        """
        free = self._free.setdefault(device, [])
        fitting = [i for i, buffer in enumerate(free) if buffer.size >= size]
        if fitting:
            return free.pop(min(fitting, key=lambda i: free[i].size))
        size += size // 8  # messages of a kind differ a little in length
        return np.empty(size, np.uint8) if device is None else device.xp.empty(size, dtype=np.uint8)

    def give_back(self, buffer: Bytes, device: Any) -> None:
        """Return ``buffer`` to the pool, which keeps the 8 longest of each place."""
        free = self._free[device]
        free.append(buffer)
        if len(free) > _KEPT:
            free.pop(min(range(len(free)), key=lambda i: free[i].size))

    def renew(self, size: int, device: Any) -> Bytes:
        """Take ``size`` bytes on ``device`` in place of those of the last ``renew``, whose use has ended."""
        last, self._last = self._last, None
        if last is not None:
            self.give_back(*last)
        self._last = self.take(size, device), device
        return self._last[0][:size]

    def abandon(self, buffer: Bytes) -> None:
        """Neither use ``buffer`` again nor free it: it may still be written to."""
        self._abandoned.append(buffer)
