"""Pack symbols of different widths without gaps.

Both ends know the widths.  Symbol i takes the bits after those of symbol i - 1, least significant first.  If
all widths are equal, this is the layout of ``base.bits``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.base.arrays import Widths
from mpicomp.base.bits import Bytes, expect_length


def pack_widths(symbols: NDArray[np.unsignedinteger], widths: Widths, nbytes: int) -> Bytes:
    """Pack symbol i, below 2^widths[i], for all i; ``symbols`` are uint16 or uint64.

    ``nbytes`` is ``widths_nbytes(widths)``.
    """
    return kernels.backend_for_length(widths.size, widths).pack_widths(symbols, widths, nbytes)


def unpack_widths(
    buf: Bytes, widths: Widths, nbytes: int, dtype: type[np.unsignedinteger]
) -> NDArray[np.unsignedinteger]:
    """Unpack the symbols in ``buf``.  Raises ``MessageError`` unless ``buf`` has ``nbytes`` bytes."""
    expect_length(buf, nbytes, "packed symbols")
    return kernels.backend_for_length(widths.size, widths).unpack_widths(buf, widths, dtype)


def widths_nbytes(widths: Widths) -> int:
    """The number of bytes that symbols of these widths take."""
    return -(-int(widths.sum()) // 8)
