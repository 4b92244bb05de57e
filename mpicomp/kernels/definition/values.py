"""Real numbers in the formats of the wire."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array
from mpicomp.kernels.definition.vectors import add_scaled


def to_wire(x: Array, values: str) -> tuple[NDArray[np.uint8], bool]:
    """(bytes of x rounded to nearest even in the format ``values``, whether all of them are finite).

    The bytes are never an alias of x.

    bf16 has eight significant bits, fewer below 2^-126, and is rounded once, also from float64.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if values != "bf16":
            wire = np.array(x, dtype=f"<{values}", order="C")
            return wire.view(np.uint8), bool(np.isfinite(wire).all())
        quantum = np.ldexp(1.0, np.maximum(np.frexp(x)[1], -125) - 8)
        wide = (np.rint(x / quantum) * quantum).astype("<f4")
        wire = np.ascontiguousarray(wide.view("<u2")[1::2])
        return wire.view(np.uint8), bool(np.isfinite(wide).all())


def are_singles(x: Array) -> bool:
    """Whether float32 has all entries of x exactly."""
    with np.errstate(over="ignore"):
        return x.dtype == np.float32 or np.array_equal(x.astype(np.float32), x)


def from_wire(buf: NDArray[np.uint8], values: str) -> Array:
    """The numbers that ``buf`` holds in the format ``values``: float64 from f8, else float32.

    They may be an alias of ``buf``.
    """
    if values == "bf16":
        return (np.frombuffer(buf, dtype="<u2").astype("<u4") << 16).view("<f4")
    numbers = np.frombuffer(buf, dtype=f"<{values}")
    if values != "f2":
        return numbers
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return numbers.astype("<f4")


def wire_add(buf: NDArray[np.uint8], out: Array, values: str, scale: float) -> None:
    """out += scale times the numbers that ``buf`` holds in the format ``values``."""
    add_scaled(out, from_wire(buf, values), scale)
