"""The numpy kernels: short, plain, and the reference that every other backend equals byte for byte."""

from mpicomp.kernels.definition.ans import ans_decode, ans_encode
from mpicomp.kernels.definition.block_floats import add_block_floats, block_float_pack
from mpicomp.kernels.definition.dithering import (
    dither_add,
    dither_pack,
    natural_dither_add,
    natural_dither_pack,
    ternary_add,
    ternary_pack,
)
from mpicomp.kernels.definition.lowrank import add_outer, project_out, times
from mpicomp.kernels.definition.mixtures import mixture_decode, mixture_slots, slots_encode
from mpicomp.kernels.definition.natural import natural_add, natural_pack
from mpicomp.kernels.definition.permutation import permute
from mpicomp.kernels.definition.philox import words
from mpicomp.kernels.definition.positions import (
    add_elias_fano,
    add_elias_fano_stack,
    complement,
    decode_bitmap,
    decode_elias_fano,
    decode_raw,
    encode_bitmap,
    encode_elias_fano,
    encode_raw,
)
from mpicomp.kernels.definition.reductions import norm
from mpicomp.kernels.definition.rotated import add_rotated, rotated_pack
from mpicomp.kernels.definition.selection import at_least, count_nonzero, nonzero, top_k
from mpicomp.kernels.definition.sign import sign_add, sign_pack
from mpicomp.kernels.definition.steps import add_steps, step_symbols
from mpicomp.kernels.definition.tiles import top_k_of_tiles
from mpicomp.kernels.definition.values import are_singles, from_wire, to_wire, wire_add
from mpicomp.kernels.definition.vectors import add_scaled, gather, scatter_add
from mpicomp.kernels.definition.widths import pack_widths, unpack_widths
