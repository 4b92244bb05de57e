"""Messages of several parts."""

from __future__ import annotations

import numpy as np

from mpicomp import kernels
from mpicomp.base.bits import Bytes


def join(*parts: Bytes) -> Bytes:
    """One message of these parts, one after the other; on the device if one of them is there."""
    if not any(map(kernels.on_device, parts)):
        return np.concatenate(parts)
    parts = tuple(map(kernels.put, parts))
    message = np.empty_like(parts[0], shape=sum(map(len, parts)))
    stop = 0
    for part in parts:  # CuPy copies contiguous bytes as such, and concatenates them one by one
        start, stop = stop, stop + len(part)
        np.copyto(message[start:stop], part)
    return message
