"""The kernels compiled by numba, under the names that ``definition`` has.  Import by ``loading`` alone."""

from mpicomp.kernels.compiled.permutation import permute
from mpicomp.kernels.compiled.philox import words
from mpicomp.kernels.compiled.positions import (
    complement,
    decode_bitmap,
    decode_elias_fano,
    decode_raw,
    decode_threes,
    encode_bitmap,
    encode_elias_fano,
    encode_raw,
    encode_threes,
)
from mpicomp.kernels.compiled.selection import at_least, nonzero, top_k
from mpicomp.kernels.compiled.vectors import add_scaled, gather, scatter_add

__all__ = [
    "add_scaled",
    "at_least",
    "complement",
    "decode_bitmap",
    "decode_elias_fano",
    "decode_raw",
    "decode_threes",
    "encode_bitmap",
    "encode_elias_fano",
    "encode_raw",
    "encode_threes",
    "gather",
    "nonzero",
    "permute",
    "scatter_add",
    "top_k",
    "words",
]
