"""The norms that travel in front of quantised coordinates."""

from __future__ import annotations

import numpy as np

from mpicomp.base.bits import Bytes, expect_length
from mpicomp.base.errors import norm_beyond
from mpicomp.base.formats import WIDTH
from mpicomp.kernels.definition.reductions import no_norm
from mpicomp.kernels.definition.values import from_wire


def encode_scale(scale: float, values: str) -> tuple[Bytes, float]:
    """The bytes of ``scale`` rounded up to the wire format, and the number they stand for.

    Rounded up, so that no coordinate exceeds the norm that the receiver reads.  Raises ``DivergedError``
    if it does not fit: the norm of a vector with an infinite entry or NaN never does.
    """
    if not scale <= float(np.finfo(values).max):
        raise norm_beyond(scale, values)
    wire = np.array([scale]).astype(f"<{values}")
    if float(wire[0]) < scale:  # as doubles: numpy would round a bare float to float32 first
        wire = np.nextafter(wire, wire.dtype.type(np.inf))
    return wire.view(np.uint8), float(wire[0])


def decode_scale(buf: Bytes, values: str) -> float:
    """The norm in ``buf``.  Raises ``MessageError`` unless it is finite and not negative."""
    expect_length(buf, WIDTH[values], f"a norm of format {values!r}")
    scale = float(from_wire(buf, values)[0])
    if not 0 <= scale < np.inf:
        raise no_norm(scale)
    return scale
