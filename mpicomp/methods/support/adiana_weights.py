"""The weights of ADIANA."""

from __future__ import annotations

from typing import NamedTuple


class Weights(NamedTuple):
    """The weights with which ADIANA mixes its sequences x, y, z and w in a round."""

    theta1: float
    theta2: float
    gamma: float
    beta: float
