"""Numbers at chosen coordinates, and on the wire."""

from __future__ import annotations

import numpy as np

from mpicomp.base.bits import expect_length
from mpicomp.base.errors import DivergedError, not_finite
from mpicomp.base.formats import WIDTH
from mpicomp.kernels.cuda.launch import Array, Launching, suffix

_DECODED = {"f8": np.float64, "f4": np.float32, "f2": np.float32, "bf16": np.float32}


def gather(on: Launching, x: Array, indices: Array) -> Array:
    """x[indices]."""
    out = on.empty(indices.size, x.dtype)
    on.each(out.size, "sparse", f"gather_{suffix(x)}", x, indices, out.size, out)
    return out


def scatter_add(on: Launching, out: Array, indices: Array, values: Array, scale: float) -> None:
    """out[indices] += scale * values; no index comes twice."""
    name = f"scatter_add_{suffix(out)}_{suffix(values)}"
    on.each(indices.size, "sparse", name, out, indices, values, indices.size, float(scale))


def add_scaled(on: Launching, out: Array, x: Array, scale: float) -> None:
    """out += scale * x."""
    name = f"add_scaled_{suffix(out)}_{suffix(x)}"
    on.dense(out.size, "sparse", name, out, x, out.size, float(scale))


def promoted(on: Launching, x: Array) -> Array:
    """x in float64; CuPy's own conversion would make subnormal float32 0."""
    if x.dtype == np.float64:
        return x
    out = on.empty(x.size, np.float64)
    on.each(x.size, "sparse", "promote", x, x.size, out)
    return out


def are_singles(on: Launching, x: Array) -> bool:
    """Whether every entry is a float32."""
    if x.dtype == np.float64:
        on.each(x.size, "sparse", "expect_singles", x, x.size, on.device.pointer)
    return not on.noted()[0]


def encode_values(on: Launching, x: Array, values: str) -> Array:
    """x in the wire format ``values``.  Raises ``DivergedError`` where one overflows or is not finite."""
    out = on.empty(x.size * WIDTH[values], np.uint8)
    name = f"encode_{values}_{suffix(x)}"
    on.dense(x.size, "sparse", name, x, x.size, out, on.device.pointer)
    if on.noted()[0]:
        if not on.xp.isfinite(x).all():
            raise not_finite()
        raise DivergedError(
            f"a value of magnitude {float(abs(x).max()):.3g} does not fit the wire format {values!r} "
            f"(allowed: {', '.join(WIDTH)})."
        )
    return out


def decode_values(on: Launching, buf: Array, count: int, values: str) -> Array:
    """The ``count`` numbers in ``buf``: float64 from f8, else float32."""
    expect_length(buf, count * WIDTH[values], f"{count} values of format {values!r}")
    out = on.empty(count, _DECODED[values])
    on.each(count, "sparse", f"decode_{values}", buf, count, out)
    return out


def add_values(on: Launching, buf: Array, out: Array, values: str, scale: float) -> None:
    """out += scale times the numbers in ``buf``."""
    expect_length(buf, out.size * WIDTH[values], f"{out.size} values of format {values!r}")
    name = f"wire_add_{values}_{suffix(out)}"
    on.dense(out.size, "sparse", name, buf, out, out.size, float(scale))
