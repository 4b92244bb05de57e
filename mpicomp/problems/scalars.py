"""Functions of one real variable: losses phi(t) of a margin t, and penalties rho(t) of a coordinate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np
import scipy

from mpicomp import kernels
from mpicomp.base.arrays import Array


def expit(t: Array) -> Array:
    """The logistic function sigma(t) = 1/(1 + exp(-t)), elementwise."""
    device = kernels.device_of(t)
    return scipy.special.expit(t) if device is None else device.expit(t)


@dataclass(frozen=True)
class Scalar:
    """A function phi of one variable: phi and phi', applied elementwise, and bounds on |phi''| and |phi'|.

    ``value`` is phi, ``slope`` is phi', ``curvature`` >= sup |phi''|, ``steepest`` >= sup |phi'|.
    """

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    curvature: float
    steepest: float = inf


# log(1 + exp(-t)).  The code writes sigma(-t) for 1 - sigma(t), which loses its digits where t is large.
LOGISTIC = Scalar(
    value=lambda t: np.logaddexp(0.0, -t),
    slope=lambda t: -expit(-t),
    curvature=0.25,
    steepest=1.0,
)

# (1 - sigma(t))^2.  phi'' = -2 s (1-s)^2 (1-3s) with s = sigma(t); its derivative vanishes where
# 12 s^2 - 9 s + 1 = 0.  |phi''| is larger at the larger root: 0.15405.
# |phi'| = 2 s (1-s)^2 is greatest at s = 1/3.
_S = (9 + np.sqrt(33)) / 24
SIGMOID_SQUARED = Scalar(
    value=lambda t: expit(-t) ** 2,
    slope=lambda t: -2 * expit(-t) ** 2 * expit(t),
    curvature=float(2 * _S * (1 - _S) ** 2 * (3 * _S - 1)),
    steepest=8 / 27,
)

# (1 - t)^2 / 2; for t = y a'x with labels y = -1, 1 it is (a'x - y)^2 / 2.
SQUARED_MARGIN = Scalar(value=lambda t: (1 - t) ** 2 / 2, slope=lambda t: t - 1, curvature=1.0)

# t^2 / 2: ridge.
SQUARE = Scalar(value=lambda t: t * t / 2, slope=lambda t: t, curvature=1.0)

# t^2 / (1 + t^2), bounded and nonconvex; phi'' = 2 (1-3t^2) / (1+t^2)^3 is greatest at 0.
BOUNDED = Scalar(
    value=lambda t: t * t / (1 + t * t),
    slope=lambda t: 2 * t / (1 + t * t) ** 2,
    curvature=2.0,
)
