"""Real numbers on the wire: IEEE double, single and half precision, and bfloat16, little-endian."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.base.bits import Bytes, expect_length
from mpicomp.base.errors import DivergedError, not_finite, unknown

WIDTH = {"f8": 8, "f4": 4, "f2": 2, "bf16": 2}  # bytes a value


def check_format(values: str) -> None:
    """Raise ``ConfigError`` unless ``values`` names a format."""
    if not isinstance(values, str) or values not in WIDTH:
        raise unknown("value format", str(values), WIDTH)


def encode_values(x: NDArray[np.floating], values: str) -> Bytes:
    """x rounded to nearest even and laid out.

    Raises ``DivergedError`` where a value is not finite, or overflows.
    """
    if kernels.on_device(x):
        return kernels.of(x).encode_values(x, values)
    wire, finite = kernels.of(x).to_wire(x, values)
    if not finite:
        if not np.isfinite(x).all():
            raise not_finite()
        raise DivergedError(
            f"a value of magnitude {np.abs(x).max():.3g} does not fit the wire format {values!r} "
            f"(allowed: {', '.join(WIDTH)})."
        )
    return wire


def decode_values(buf: Bytes, count: int, values: str) -> NDArray[np.floating]:
    """The ``count`` numbers in ``buf``: float64 from f8, else float32.

    Raises ``MessageError`` on a wrong length.
    """
    if kernels.on_device(buf):
        return kernels.of(buf).decode_values(buf, count, values)
    _expect(buf, count, values)
    return kernels.sized(count).from_wire(buf, values)


def add_values(buf: Bytes, out: NDArray[np.floating], values: str, scale: float) -> None:
    """out += scale times the numbers in ``buf``, without a vector between if long.

    Raises ``MessageError``, and adds nothing, on a wrong length.
    """
    _expect(buf, out.size, values)
    kernels.of(out).wire_add(buf, out, values, scale)


def _expect(buf: Bytes, count: int, values: str) -> None:
    expect_length(buf, count * WIDTH[values], f"{count} values of format {values!r}")
