"""Launching kernels: the helpers that all families of kernels share.

Arrays live on the device and what is returned stays there.  x: contiguous, one-dimensional, float32 or
float64.  A ``stream`` is (key, upper counter lanes), as for ``definition.philox.words``.

Streams.  Every launch, allocation and copy goes to the current CUDA stream of the calling thread.  A
function that may raise, or that returns a number or an array whose size depends on the data, ends by
waiting for that stream, and for no other; what only moves or selects (``words``, ``permute``, ``top_k``,
``top_k_of_tiles``, ``encode_indices`` of no more than half, ``gather``, ``scatter_add``, ``add_scaled``,
``decode_values``, ``add_values``) does not wait.  A caller that hands bytes to MPI or to another stream has
to wait first.

Nothing is added from a message that is refused; its length is the caller's to check.  Indices are not checked
against the length of x.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from mpicomp.base.arrays import StreamName
from mpicomp.base.errors import ConfigError
from mpicomp.kernels.definition.reductions import no_norm

Array = Any  # an array of the device's library

THREADS, BLOCK = 256, 8192  # threads a block, coordinates a block
NULL = 0


class Device(Protocol):
    """Where kernels run: an array library, and a way to launch; ``gpu.Gpu``, or a CPU that plays one."""

    xp: Any
    multiprocessors: int
    notes: (
        Any  # four 64-bit numbers that the host and the kernels see; 0 but after a kernel has noted something
    )
    pointer: Any  # to them, as ``launch`` takes it
    dlpack: tuple[int, int]  # the kind and number of the device, as DLPack has them

    def launch(self, module: str, kernel: str, grid: int, block: int, *args: Any) -> None:
        """Run ``kernel`` of ``module`` on grid x block threads."""

    def expit(self, x: Array) -> Array:
        """1/(1 + exp(-x)), elementwise: the library's, which has scipy.special's name for it."""

    def wait(self) -> None:
        """Wait until everything launched so far is done."""

    def put(self, a: Any) -> Array:
        """Copy an array of the host to the device; an array that lies there is returned as it is."""

    def host(self, a: Array) -> Any:
        """Copy a device array to a numpy array, once everything launched so far is done."""


class Launching:
    """A device, and how the families of kernels call it."""

    def __init__(self, device: Device) -> None:
        self.device, self.xp, self.dlpack = device, device.xp, device.dlpack
        self.put, self.host, self.wait = device.put, device.host, device.wait

    def check(self, buf: Array, count: int, width: int, most: int) -> Array:
        """A flag on the device: is one of the symbols larger than ``most``?"""
        bad = self.xp.zeros(1, dtype=np.uint32)
        self.dense(count, "check", "check", buf, count, width, most, bad, self.device.pointer)
        return bad

    def expect_norm(self, head: Array) -> int:
        """Wait.  Raises ``MessageError`` if ``head`` holds no norm; returns a bad symbol, or 0."""
        norm, symbol, _ = self.noted()
        if norm:
            raise no_norm(self.device.host(head).view(f"<f{head.size}")[0])
        return symbol

    def noted(self) -> tuple[int, int, int]:
        """Read and clear the kernels' notes: (is anything refused or infinite?, a bad symbol, a count)."""
        self.device.wait()
        bad, symbol, count, _ = self.device.notes.tolist()
        self.device.notes.fill(0)
        return bad, symbol, count

    def dense(self, d: int, module: str, kernel: str, *args: Any) -> None:
        self.device.launch(module, kernel, -(-d // BLOCK), THREADS, *args)

    def each(self, count: int, module: str, kernel: str, *args: Any) -> None:
        self.device.launch(module, kernel, -(-count // THREADS), THREADS, *args)

    def empty(self, count: int, dtype: Any) -> Array:
        return self.xp.empty(count, dtype=dtype)


def suffix(x: Array) -> str:
    """The type of x as it stands in a kernel's name: f32 or f64."""
    if x.ndim != 1 or not x.flags.c_contiguous or x.dtype not in (np.float32, np.float64):
        raise ConfigError(
            f"an array of shape {x.shape} and type {x.dtype}; allowed: contiguous, one-dimensional, "
            "float32 or float64."
        )
    return "f32" if x.dtype == np.float32 else "f64"


@lru_cache
def flat(stream: StreamName) -> tuple[int, ...]:
    """A stream as kernels take it: the keys of Philox's ten rounds, then the upper counter lanes."""
    (k0, k1), (c1, c2, c3) = stream
    low = [(k0 + r * 0x9E3779B9) & 0xFFFFFFFF for r in range(10)]
    high = [(k1 + r * 0xBB67AE85) & 0xFFFFFFFF for r in range(10)]
    return (*map(_pair, low, high), _pair(c1, c2), c3)


def _pair(low: int, high: int) -> int:
    """Two 32-bit words as one signed 64-bit number."""
    both = high << 32 | low
    return both - 2**64 if high >> 31 else both


def or_null(a: Array | None) -> Array | int:
    return NULL if a is None else a
