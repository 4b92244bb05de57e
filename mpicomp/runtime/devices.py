"""Choose the device that holds the vectors of a run: the CPU or a GPU."""

from __future__ import annotations

from typing import Any

from mpicomp.base.errors import check_known
from mpicomp.transports.launcher import local_rank

DEVICES = ("cpu", "cuda")


def open_device(name: str) -> Any:
    """Open the device called ``name``, for ``kernels.using``; returns None for the CPU.

    With several GPUs, the ranks on a host are assigned to them in turn; ranks may share one.  Raises
    ``ConfigError`` for an unknown name, or for "cuda" if no GPU can be used.
    """
    check_known("device", name, DEVICES)
    if name == "cpu":
        return None
    from mpicomp.kernels.cuda import Cuda
    from mpicomp.kernels.cuda.gpu import Gpu  # CuPy is optional

    return Cuda(Gpu(local_rank()))
