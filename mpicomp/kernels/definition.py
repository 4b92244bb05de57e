"""The numpy kernels: short, plain, and what every other backend must agree with byte for byte."""

from mpicomp.kernels.permutation import permute
from mpicomp.kernels.philox import words
from mpicomp.kernels.positions import (
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
from mpicomp.kernels.selection import at_least, nonzero, top_k
from mpicomp.kernels.vectors import add_scaled, gather, scatter_add

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
