"""Real numbers in the formats of the wire, compiled: rounded, and checked on the way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.kernels import values as definition
from mpicomp.kernels.compiled.jit import (
    FLOATS,
    bits_of,
    boolean,
    float_of,
    kernel,
    read,
    single_bits_of,
    uint16,
    write,
)
from mpicomp.kernels.values import Float


def to_wire(x: Float, values: str) -> tuple[NDArray[np.uint8], bool]:
    """x rounded to nearest even in the format ``values``, never an alias; whether all of it is finite."""
    if values == "f2":
        return definition.to_wire(x, values)
    wire = np.empty(x.size, dtype="u2" if values == "bf16" else values)
    finite = _bf16(x, wire) if values == "bf16" else _converted(x, wire)
    return wire.view(np.uint8), finite


@kernel(*(boolean(read(x), write(o)) for x in FLOATS for o in FLOATS))
def _converted(x, out):
    finite = 0
    for j in range(x.size):
        out[j] = x[j]
        finite += abs(out[j]) < np.inf
    return finite == x.size


@kernel(*(boolean(read(x), write(uint16)) for x in FLOATS))
def _bf16(x, out):
    finite = 0
    for j in range(x.size):
        number = np.float64(x[j])
        exponent = max((bits_of(number) >> np.uint64(52)) & np.uint64(0x7FF), np.uint64(1023 - 126))
        quantum = float_of((exponent - np.uint64(7)) << np.uint64(52))
        wide = np.float32(np.rint(number / quantum) * quantum)
        finite += abs(wide) < np.float32(np.inf)
        out[j] = single_bits_of(wide) >> np.uint32(16)
    return finite == x.size
