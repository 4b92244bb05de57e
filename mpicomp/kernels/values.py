"""Real numbers in the formats of the wire."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.floating]


def to_wire(x: Float, values: str) -> tuple[NDArray[np.uint8], bool]:
    """x rounded to nearest even in the format ``values``, never an alias of x; whether all of it is finite.

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
