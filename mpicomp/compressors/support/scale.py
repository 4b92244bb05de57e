"""The norms that travel in front of quantised coordinates."""

from __future__ import annotations

import numpy as np

from mpicomp import kernels
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import check_choice
from mpicomp.base.errors import norm_beyond
from mpicomp.codecs.values import decode_values
from mpicomp.compressors.base import Array
from mpicomp.kernels.definition.reductions import no_norm


def check_scale_format(values: str) -> None:
    """A norm is sent in single or double precision."""
    check_choice("values", values, ("f4", "f8"))


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
    scale = float(decode_values(buf, 1, values)[0])
    if not 0 <= scale < np.inf:
        raise no_norm(scale)
    return scale


def encode_norms(blocks: list[Array], values: str) -> tuple[Bytes, Array]:
    """The 2-norms of several vectors, as ``encode_scale`` codes each, and what they stand for, in float64.

    Raises ``DivergedError`` as that does.
    """
    if kernels.on_device(blocks[0]):
        return kernels.of(blocks[0]).encode_norms(blocks, values)
    coded = [encode_scale(kernels.of(block).norm(block, "2"), values) for block in blocks]
    return np.concatenate([head for head, _ in coded]), np.array([norm for _, norm in coded])


def decode_norms(buf: Bytes, count: int, values: str) -> Array:
    """The ``count`` norms in ``buf``, float64.  Raises ``MessageError`` as ``decode_scale`` does."""
    norms = kernels.promoted(decode_values(buf, count, values))
    fit = (norms >= 0) & (norms < np.inf)
    if not fit.all():
        raise no_norm(float(norms[~fit][0]))
    return norms
