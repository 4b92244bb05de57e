"""A sparse vector whose number of entries the receiver does not know.

==========  ===========================  ==================================================
bytes       field                        note
==========  ===========================  ==================================================
1 to 8      count k, little-endian       as many bytes as d needs
ceil(..)    positions                    ``indices.index_nbytes(d, k)`` bytes
k w         values                       w bytes each
==========  ===========================  ==================================================
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Indices
from mpicomp.base.bits import Bytes
from mpicomp.base.formats import WIDTH
from mpicomp.codecs.count import count_nbytes, decode_count, encode_count
from mpicomp.codecs.indices import decode_indices, encode_indices
from mpicomp.codecs.values import decode_values, encode_values
from mpicomp.kernels import join
from mpicomp.kernels.index_layouts import index_nbytes


def sparse_nbytes(d: int, k: int, values: str) -> int:
    """Bytes of a message with k entries."""
    return count_nbytes(d) + index_nbytes(d, k) + k * WIDTH[values]


def encode_sparse(indices: Indices, x: NDArray[np.floating], d: int, values: str) -> Bytes:
    """The entries ``x`` at strictly increasing ``indices`` of a vector in R^d."""
    return join(encode_count(indices.size, d), encode_indices(indices, d), encode_values(x, values))


def decode_sparse(buf: Bytes, d: int, values: str) -> tuple[Indices, NDArray[np.floating]]:
    """The indices and values in ``buf``.  Raises ``MessageError`` if it holds no such vector."""
    head, k = count_nbytes(d), decode_count(buf, d)
    split = head + index_nbytes(d, k)
    return decode_indices(buf[head:split], d, k), decode_values(buf[split:], k, values)
