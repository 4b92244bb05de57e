"""Where the vectors of a run are: in this process's memory, or on a GPU."""

from __future__ import annotations

from typing import Any

from mpicomp.base.errors import unknown
from mpicomp.transports.launcher import local_rank

DEVICES = ("cpu", "cuda")


def open_device(name: str) -> Any:
    """Open the device called ``name``, for ``kernels.using``; returns None for the CPU.

    Ranks on a host take its GPUs in turn and share them.  Raises ``ConfigError`` where there is none.
    """
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    if name == "cpu":
        return None
    from mpicomp.kernels.cuda import Cuda
    from mpicomp.kernels.cuda.gpu import Gpu  # CuPy is optional

    return Cuda(Gpu(local_rank()))
