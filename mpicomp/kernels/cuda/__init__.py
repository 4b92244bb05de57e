"""The kernels on a CUDA device: sources (``*.cu``), how they are launched, and CuPy, which launches them.

The numpy definitions hold byte for byte.  ``arithmetic.cuh`` has what is computed for one coordinate,
``warp.cuh`` what the threads of a warp do together; each source file is one module, compiled by NVRTC
when it is first used and kept on disk by CuPy.  ``gpu.Gpu`` alone imports CuPy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpicomp.base.arrays import StreamName
from mpicomp.kernels.cuda import (
    draws,
    levels,
    natural,
    norms,
    numbers,
    packing,
    positions,
    selection,
    sign,
    steps,
)
from mpicomp.kernels.cuda.launch import Array, Device, Launching
from mpicomp.kernels.interface import Kernels

__all__ = ["Cuda", "Device"]


class Cuda(Launching, Kernels):
    """The kernels on one device; for messages with one norm at their head the host waits once, at the end."""

    def words(self, stream: StreamName, start: int, count: int) -> Array:
        return draws.words(self, stream, start, count)

    def permute(self, stream: StreamName, d: int, start: int, stop: int) -> Array:
        return draws.permute(self, stream, d, start, stop)

    def heads(self, stream: StreamName, d: int, p: float | Array) -> Array:
        return selection.heads(self, stream, d, p)

    def top_k(self, x: Array, k: int) -> Array:
        return selection.top_k(self, x, k)

    def at_least(self, x: Array, lam: float) -> Array:
        return selection.at_least(self, x, lam)

    def nonzero(self, x: Array) -> Array:
        return selection.nonzero(self, x)

    def gather(self, x: Array, indices: Array) -> Array:
        return numbers.gather(self, x, indices)

    def scatter_add(self, out: Array, indices: Array, values: Array, scale: float) -> None:
        numbers.scatter_add(self, out, indices, values, scale)

    def add_scaled(self, out: Array, x: Array, scale: float) -> None:
        numbers.add_scaled(self, out, x, scale)

    def are_singles(self, x: Array) -> bool:
        return numbers.are_singles(self, x)

    def encode_values(self, x: Array, values: str) -> Array:
        return numbers.encode_values(self, x, values)

    def decode_values(self, buf: Array, count: int, values: str) -> Array:
        return numbers.decode_values(self, buf, count, values)

    def add_values(self, buf: Array, out: Array, values: str, scale: float) -> None:
        numbers.add_values(self, buf, out, values, scale)

    def encode_indices(self, indices: Array, d: int) -> Array:
        return positions.encode_indices(self, indices, d)

    def decode_indices(self, buf: Array, d: int, k: int) -> Array:
        return positions.decode_indices(self, buf, d, k)

    def add_elias_fano(self, buf: Array, out: Array, values: Array, low: int, scale: float) -> None:
        self.scatter_add(out, self.decode_indices(buf, out.size, values.size), values, scale)

    def pack_widths(self, symbols: Array, widths: Array, nbytes: int) -> Array:
        return packing.pack_widths(self, symbols, widths, nbytes)

    def unpack_widths(self, buf: Array, widths: Array, dtype: type[np.unsignedinteger]) -> Array:
        return packing.unpack_widths(self, buf, widths, dtype)

    def encode_norms(self, blocks: Sequence[Array], values: str) -> tuple[Array, Array]:
        return norms.encode_norms(self, blocks, values)

    def sign(self, x: Array, values: str) -> Array:
        return sign.sign(self, x, values)

    def add_sign(self, message: Array, out: Array, values: str, scale: float) -> None:
        sign.add_sign(self, message, out, values, scale)

    def natural(self, x: Array, values: str, stream: StreamName) -> Array:
        return natural.natural(self, x, values, stream)

    def add_natural(self, message: Array, out: Array, values: str, scale: float) -> None:
        natural.add_natural(self, message, out, values, scale)

    def dither(self, x: Array, s: int, p: str, values: str, stream: StreamName) -> Array:
        return levels.dither(self, x, s, p, values, stream)

    def add_dither(self, message: Array, out: Array, s: int, values: str, scale: float) -> None:
        levels.add_dither(self, message, out, s, values, scale)

    def natural_dither(self, x: Array, s: int, p: str, values: str, stream: StreamName) -> Array:
        return levels.natural_dither(self, x, s, p, values, stream)

    def add_natural_dither(self, message: Array, out: Array, s: int, values: str, scale: float) -> None:
        levels.add_natural_dither(self, message, out, s, values, scale)

    def ternary(self, x: Array, values: str, stream: StreamName) -> Array:
        return levels.ternary(self, x, values, stream)

    def add_ternary(self, message: Array, out: Array, values: str, scale: float) -> None:
        levels.add_ternary(self, message, out, values, scale)

    def step_symbols(self, x: Array, norms: Array, r: Array, stream: StreamName) -> Array:
        return steps.step_symbols(self, x, norms, r, stream)

    def add_steps(self, symbols: Array, out: Array, norms: Array, r: Array, scale: float) -> None:
        steps.add_steps(self, symbols, out, norms, r, scale)

    def promoted(self, x: Array) -> Array:
        """x in float64; x itself if it is."""
        return numbers.promoted(self, x)

    def expit(self, x: Array) -> Array:
        """1/(1 + exp(-x)), elementwise; of any shape."""
        return self.device.expit(x)
