"""Colour images as three grey ones, by a reversible transform: green, red - green, blue - green."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MIDDLE = np.uint8(128)  # the differences' 0, for they are taken modulo 256

Pixels = NDArray[np.uint8]


def to_planes(pixels: Pixels) -> Pixels:
    """The planes, (3 m, height, width), green first, of images (m, height, width, 3) in red, green, blue."""
    red, green, blue = np.moveaxis(pixels, -1, 0)
    return np.concatenate([green, red - green + MIDDLE, blue - green + MIDDLE])


def from_planes(planes: Pixels) -> Pixels:
    """The images that ``to_planes`` was given."""
    green, red, blue = np.split(planes, 3)
    return np.stack([red + green - MIDDLE, green, blue + green - MIDDLE], axis=-1)
