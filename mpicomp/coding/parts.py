"""Messages of several parts."""

from __future__ import annotations

import numpy as np

from mpicomp import kernels
from mpicomp.coding.bits import Bytes


def join(*parts: Bytes) -> Bytes:
    """One message of these parts, one after the other; on the device if one of them is there."""
    if any(map(kernels.on_device, parts)):
        parts = tuple(map(kernels.put, parts))
    return np.concatenate(parts)
