"""The kernels compiled by numba, under the names that ``definition`` has.  Import by ``loading`` alone."""

from mpicomp.kernels.compiled.ans import ans_decode, ans_encode
from mpicomp.kernels.compiled.block_floats import block_float_add, block_float_pack
from mpicomp.kernels.compiled.dithering import (
    dither_add,
    dither_pack,
    natural_dither_add,
    natural_dither_pack,
    ternary_add,
    ternary_pack,
)
from mpicomp.kernels.compiled.lowrank import add_outer, times
from mpicomp.kernels.compiled.mixtures import mixture_decode, mixture_slots, slots_encode
from mpicomp.kernels.compiled.natural import natural_add, natural_pack
from mpicomp.kernels.compiled.permutation import permute
from mpicomp.kernels.compiled.philox import words
from mpicomp.kernels.compiled.positions import (
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
from mpicomp.kernels.compiled.reductions import norm
from mpicomp.kernels.compiled.selection import at_least, count_nonzero, nonzero, top_k
from mpicomp.kernels.compiled.sign import sign_add, sign_pack
from mpicomp.kernels.compiled.steps import step_add, step_symbols
from mpicomp.kernels.compiled.values import are_singles, from_wire, to_wire, wire_add
from mpicomp.kernels.compiled.vectors import add_scaled, gather, scatter_add
from mpicomp.kernels.compiled.widths import pack_widths, unpack_widths
