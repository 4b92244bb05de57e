"""Real numbers on the wire: IEEE double, single and half precision, and bfloat16, little-endian."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.coding.bits import Bytes, expect_length
from mpicomp.errors import DivergedError, not_finite, unknown

WIDTH = {"f8": 8, "f4": 4, "f2": 2, "bf16": 2}  # bytes a value


def check_format(values: str) -> None:
    """Raise ``ConfigError`` unless ``values`` names a format."""
    if values not in WIDTH:
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
    """The ``count`` numbers in ``buf``, as float32 (from bf16) or as what was sent."""
    if kernels.on_device(buf):
        return kernels.of(buf).decode_values(buf, count, values)
    expect_length(buf, count * WIDTH[values], f"{count} values of format {values!r}")
    if values == "bf16":
        return (np.frombuffer(buf, dtype="<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(buf, dtype=f"<{values}")
