"""Memory for messages that arrive: the host's, or that of a device."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from mpicomp import kernels
from mpicomp.base.bits import Bytes

_KEPT = 8  # buffers of a place: as many as messages long enough for their pages to cost time


def empty(size: int, device: Any) -> Bytes:
    """``size`` bytes on ``device``, the kernels of one, or in the host's memory if that is None."""
    return np.empty(size, np.uint8) if device is None else device.xp.empty(size, dtype=np.uint8)


def mpi_buffer(buffer: Bytes) -> list[Any]:
    """``buffer`` as MPI takes it; one on the device once everything launched there is done."""
    if (device := kernels.device_of(buffer)) is not None:
        device.wait()
    return [buffer, MPI.BYTE]


class Inbox:
    """Buffers that are used again, on the host and on each device that is asked for."""

    def __init__(self) -> None:
        self._free: dict[Any, list[Bytes]] = {}
        self._abandoned: list[Bytes] = []

    def take(self, size: int, device: Any) -> Bytes:
        """At least ``size`` bytes on ``device``, until they are given back."""
        free = self._free.setdefault(device, [])
        fitting = [i for i, buffer in enumerate(free) if buffer.size >= size]
        if fitting:
            return free.pop(min(fitting, key=lambda i: free[i].size))
        return empty(size + size // 8, device)  # messages of a kind differ a little in length

    def give_back(self, buffer: Bytes, device: Any) -> None:
        """Keep ``buffer`` for another message, if it is one of the longest."""
        free = self._free[device]
        free.append(buffer)
        if len(free) > _KEPT:
            free.pop(min(range(len(free)), key=lambda i: free[i].size))

    def abandon(self, buffer: Bytes) -> None:
        """Neither use ``buffer`` again nor free it: MPI may still write to it."""
        self._abandoned.append(buffer)
