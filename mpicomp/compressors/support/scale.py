"""The coding of norms, which precede quantised coordinates in a message."""

from __future__ import annotations

import numpy as np

from mpicomp import kernels
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import norm_beyond
from mpicomp.codecs.values import decode_values
from mpicomp.compressors.base import Array, check_choice
from mpicomp.kernels.definition.reductions import no_norm


def check_scale_format(values: str) -> None:
    """Raise ``ConfigError`` unless ``values`` is "f4" or "f8": norms are sent in these formats only."""
    check_choice("values", values, ("f4", "f8"))


def encode_scale(scale: float, values: str) -> tuple[Bytes, float]:
    """The bytes of ``scale``, rounded up to the format ``values``, and the number that they encode.

    Rounding up ensures that no coordinate exceeds the norm that the receiver reads.  Raises ``DivergedError``
    if the norm is infinite, NaN or too large for the format.
    """
    if not scale <= float(np.finfo(values).max):
        raise norm_beyond(scale, values)
    wire = np.array([scale]).astype(f"<{values}")
    if float(wire[0]) < scale:  # compared as doubles: numpy would round ``scale`` to float32
        wire = np.nextafter(wire, wire.dtype.type(np.inf))
    return wire.view(np.uint8), float(wire[0])


def decode_scale(buf: Bytes, values: str) -> float:
    """The norm in ``buf``.  Raises ``MessageError`` unless it is finite and not negative."""
    scale = float(decode_values(buf, 1, values)[0])
    if not 0 <= scale < np.inf:
        raise no_norm(scale)
    return scale


def encode_norms(blocks: list[Array], values: str) -> tuple[Bytes, Array]:
    """The 2-norms of several vectors, each coded by ``encode_scale``: all bytes, and the numbers in float64.

    Raises ``DivergedError`` as ``encode_scale`` does.
    """
    if kernels.on_device(blocks[0]):
        return kernels.of(blocks[0]).encode_norms(blocks, values)
    coded = [encode_scale(kernels.of(block).norm(block, "2"), values) for block in blocks]
    return np.concatenate([head for head, _ in coded]), np.array([norm for _, norm in coded])


def decode_norms(buf: Bytes, count: int, values: str) -> Array:
    """The ``count`` norms in ``buf``, as float64.  Raises ``MessageError`` as ``decode_scale`` does."""
    norms = kernels.promoted(decode_values(buf, count, values))
    fit = (norms >= 0) & (norms < np.inf)
    if not fit.all():
        raise no_norm(float(norms[~fit][0]))
    return norms
