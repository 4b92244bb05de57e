"""Buffers as mpi4py takes them."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from mpicomp import kernels
from mpicomp.base.bits import Bytes


def mpi_buffer(buffer: Bytes) -> list[Any]:
    """``buffer`` as mpi4py takes it.  For a buffer on a device, first wait for all kernels launched there."""
    if (device := kernels.device_of(buffer)) is not None:
        device.wait()
    return [buffer, MPI.BYTE]
