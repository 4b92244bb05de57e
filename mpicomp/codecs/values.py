"""Code real numbers, little-endian, in one of the formats f8, f4, f2 and bf16."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.base.bits import Bytes


def encode_values(x: NDArray[np.floating], values: str) -> Bytes:
    """The bytes of x, rounded to nearest even, in the format ``values``.

    Raises ``DivergedError`` if a value is not finite, or overflows.
    """
    return kernels.backend_for(x).encode_values(x, values)


def decode_values(buf: Bytes, count: int, values: str) -> NDArray[np.floating]:
    """The ``count`` numbers in ``buf``: float64 from f8, else float32.

    Raises ``MessageError`` on a wrong length.
    """
    return kernels.backend_for_length(count, buf).decode_values(buf, count, values)


def add_values(buf: Bytes, out: NDArray[np.floating], values: str, scale: float) -> None:
    """out += scale times the numbers in ``buf``, without a temporary vector if ``out`` is long.

    Raises ``MessageError``, and adds nothing, on a wrong length.
    """
    kernels.backend_for(out).add_values(buf, out, values, scale)
