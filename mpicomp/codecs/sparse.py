"""Code a sparse vector whose number of entries the receiver does not know.

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

from mpicomp import kernels
from mpicomp.base.arrays import Indices
from mpicomp.base.bits import Bytes
from mpicomp.base.formats import WIDTH
from mpicomp.codecs.count import count_nbytes, decode_count, encode_count
from mpicomp.codecs.indices import decode_indices, encode_indices
from mpicomp.codecs.values import decode_values, encode_values
from mpicomp.kernels import join
from mpicomp.kernels.index_layouts import elias_fano, index_nbytes


def sparse_nbytes(d: int, k: int, values: str) -> int:
    """The bytes of a message with k entries of a vector in R^d, in the format ``values``."""
    return count_nbytes(d) + index_nbytes(d, k) + k * WIDTH[values]


def encode_sparse(indices: Indices, x: NDArray[np.floating], d: int, values: str, *head: Bytes) -> Bytes:
    """Code the entries ``x`` at strictly increasing ``indices`` of a vector in R^d, after ``head``."""
    k = indices.size
    return join(*head, encode_count(k, d), encode_indices(indices, d), encode_values(x, values))


def add_sparse(buf: Bytes, out: NDArray[np.floating], values: str, scale: float) -> None:
    """out += scale times the vector in ``buf``.

    Raises ``MessageError``, and adds nothing, if ``buf`` holds no such vector.
    """
    k = decode_count(buf, out.size)
    add_entries(buf[count_nbytes(out.size) :], out, k, values, scale)


def sparse_indices(buf: Bytes, d: int) -> Indices:
    """The indices in ``buf``, increasing.  Raises ``MessageError`` if it holds no set of them."""
    k, head = decode_count(buf, d), count_nbytes(d)
    return decode_indices(buf[head : head + index_nbytes(d, k)], d, k)


def add_entries(buf: Bytes, out: NDArray[np.floating], k: int, values: str, scale: float) -> None:
    """out += scale times the vector with k entries in ``buf``: the positions, and then the values.

    Raises ``MessageError``, and adds nothing, if ``buf`` holds no such vector.
    """
    d = out.size
    split = index_nbytes(d, k)
    entries = decode_values(buf[split:], k, values)
    on, low = kernels.backend_for(out, entries), elias_fano(d, k)
    if low is None:
        on.scatter_add(out, decode_indices(buf[:split], d, k), entries, scale)
    else:
        on.add_elias_fano(buf[:split], out, entries, low, scale)
