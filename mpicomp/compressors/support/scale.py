"""The coding of norms, which precede quantised coordinates in a message."""

from __future__ import annotations

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Reals
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import check_choice
from mpicomp.codecs.values import decode_values
from mpicomp.kernels.definition.reductions import no_norm


def check_scale_format(values: str) -> None:
    """Raise ``ConfigError`` unless ``values`` is "f4" or "f8": norms are sent in these formats only."""
    check_choice("values", values, ("f4", "f8"))


def decode_norms(buf: Bytes, count: int, values: str) -> Reals:
    """The ``count`` norms in ``buf``, as float64.

    Raises ``MessageError`` for one that is negative or not finite.
    """
    norms = kernels.promoted(decode_values(buf, count, values))
    fit = (norms >= 0) & (norms < np.inf)
    if not fit.all():
        raise no_norm(float(norms[~fit][0]))
    return norms
