"""The norm that travels in front of quantised coordinates."""

from __future__ import annotations

import numpy as np

from mpicomp.coding.bits import Bytes
from mpicomp.coding.values import decode_values
from mpicomp.compressors.base import check_choice
from mpicomp.errors import DivergedError, MessageError


def check_scale_format(values: str) -> None:
    """A norm is sent in single or double precision."""
    check_choice("values", values, ("f4", "f8"))


def encode_scale(scale: float, values: str) -> tuple[Bytes, float]:
    """The bytes of ``scale`` rounded up to the wire format, and the number they stand for.

    Rounded up, so that no coordinate exceeds the norm that the receiver reads.  Raises ``DivergedError``
    if it does not fit: the norm of a vector with an infinite entry or NaN never does.
    """
    if not scale <= float(np.finfo(values).max):
        raise DivergedError(
            f"a norm of {scale:.3g} does not fit the wire format {values!r} (allowed: f4, f8)."
        )
    wire = np.array([scale]).astype(f"<{values}")
    if float(wire[0]) < scale:  # as doubles: numpy would round a bare float to float32 first
        wire = np.nextafter(wire, wire.dtype.type(np.inf))
    return wire.view(np.uint8), float(wire[0])


def decode_scale(buf: Bytes, values: str) -> float:
    """The norm in ``buf``.  Raises ``MessageError`` unless it is finite and not negative."""
    scale = float(decode_values(buf, 1, values)[0])
    if not 0 <= scale < np.inf:
        raise MessageError(f"a norm of {scale} at the head of a message; it must be finite and not negative.")
    return scale
