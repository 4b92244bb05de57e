"""The kernels on a CUDA device: sources (``*.cu``), how they are launched, and CuPy, which launches them.

The numpy definitions hold byte for byte.  ``arithmetic.cuh`` has what is computed for one coordinate,
``warp.cuh`` what the threads of a warp do together; each source file is one module, compiled by NVRTC
when it is first used and kept on disk by CuPy.  ``gpu.Gpu`` alone imports CuPy.
"""

from __future__ import annotations

from mpicomp.kernels.cuda import block_floats as blocks
from mpicomp.kernels.cuda import draws, levels, norms, numbers, packing, positions, selection, steps, tiles
from mpicomp.kernels.cuda import natural as naturals
from mpicomp.kernels.cuda import rotated as rotations
from mpicomp.kernels.cuda import sign as signs
from mpicomp.kernels.cuda.launch import Array, Device, Launching
from mpicomp.kernels.interface import Kernels

__all__ = ["Cuda", "Device"]


class Cuda(Launching, Kernels):
    """The kernels on one device: functions of it, each in the module of its kind, are its methods.

    For messages with one norm at their head the host waits once, at the end.
    """

    words, permute = draws.words, draws.permute
    heads, top_k, at_least, nonzero = selection.heads, selection.top_k, selection.at_least, selection.nonzero
    count_nonzero, top_k_of_tiles = selection.count_nonzero, tiles.top_k_of_tiles
    gather, scatter_add, add_scaled = numbers.gather, numbers.scatter_add, numbers.add_scaled
    are_singles, promoted = numbers.are_singles, numbers.promoted
    encode_values, decode_values, add_values = (
        numbers.encode_values,
        numbers.decode_values,
        numbers.add_values,
    )
    encode_indices, decode_indices = positions.encode_indices, positions.decode_indices
    pack_widths, unpack_widths = packing.pack_widths, packing.unpack_widths
    encode_norms = norms.encode_norms
    sign, add_sign = signs.sign, signs.add_sign
    natural, add_natural = naturals.natural, naturals.add_natural
    dither, add_dither = levels.dither, levels.add_dither
    natural_dither, add_natural_dither = levels.natural_dither, levels.add_natural_dither
    ternary, add_ternary = levels.ternary, levels.add_ternary
    block_floats, add_block_floats = blocks.block_floats, blocks.add_block_floats
    rotated, add_rotated = rotations.rotated, rotations.add_rotated
    step_symbols, add_steps = steps.step_symbols, steps.add_steps

    def add_elias_fano(self, buf: Array, out: Array, values: Array, low: int, scale: float) -> None:
        self.scatter_add(out, self.decode_indices(buf, out.size, values.size), values, scale)

    def expit(self, x: Array) -> Array:
        """1/(1 + exp(-x)), elementwise; of any shape."""
        return self.device.expit(x)
