"""Real numbers in the formats of the wire, compiled: rounded and checked, or read and added, in one pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.kernels.compiled import shortfloats
from mpicomp.kernels.compiled.jit import FLOATS, boolean, float64, kernel, read, write
from mpicomp.kernels.compiled.vectors import add_scaled
from mpicomp.kernels.definition import values as definition
from mpicomp.kernels.threads import sliced

_CONVERT = {  # by the format and the bytes of a number that is to be rounded
    ("f2", 4): shortfloats.half_of_single,
    ("f2", 8): shortfloats.half_of_double,
    ("bf16", 4): shortfloats.bf16_of_single,
    ("bf16", 8): shortfloats.bf16_of_double,
}
_WIDEN = {"f2": shortfloats.widen_half, "bf16": shortfloats.widen_bf16}
_ADD = {"f2": shortfloats.add_half, "bf16": shortfloats.add_bf16}


def to_wire(x: Array, values: str) -> tuple[NDArray[np.uint8], bool]:
    """x rounded to nearest even in the format ``values``, never an alias; whether all of it is finite."""
    wire = np.empty(x.size, dtype=np.uint16 if values in _ADD else values)
    convert = _CONVERT.get((values, x.itemsize), _converted)
    finite = sliced(lambda a, b: convert(x[a:b], wire[a:b]), x.size)
    return wire.view(np.uint8), all(finite)


def are_singles(x: Array) -> bool:
    """Whether float32 has all entries of x exactly."""
    return x.dtype == np.float32 or all(sliced(lambda a, b: _are_singles(x[a:b]), x.size))


def from_wire(buf: Bytes, values: str) -> Array:
    """The numbers that ``buf`` holds in the format ``values``: float64 from f8, else float32."""
    if values not in _WIDEN:
        return definition.from_wire(buf, values)
    codes, widen = np.frombuffer(buf, dtype=np.uint16), _WIDEN[values]
    out = np.empty(codes.size, dtype=np.float32)
    sliced(lambda a, b: widen(codes[a:b], out[a:b]), codes.size)
    return out


def wire_add(buf: Bytes, out: Array, values: str, scale: float) -> None:
    """out += scale times the numbers that ``buf`` holds in the format ``values``."""
    if values not in _ADD:
        return add_scaled(out, definition.from_wire(buf, values), scale)
    codes, add = np.frombuffer(buf, dtype=np.uint16), _ADD[values]
    if codes.size != out.size:
        raise ValueError(f"{codes.size} values for {out.size} coordinates")
    sliced(lambda a, b: add(codes[a:b], out[a:b], scale), codes.size)


@kernel(boolean(read(float64)))
def _are_singles(x):
    exact = 0
    for j in range(x.size):
        exact += np.float64(np.float32(x[j])) == x[j]
    return exact == x.size


@kernel(*(boolean(read(x), write(o)) for x in FLOATS for o in FLOATS))
def _converted(x, out):
    finite = 0
    for j in range(x.size):
        out[j] = x[j]
        finite += abs(out[j]) < np.inf
    return finite == x.size
