"""Turn a colour image into three grey images, reversibly: green, red - green, blue - green."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MIDDLE = np.uint8(128)  # stands for a difference of 0; differences are taken modulo 256

Pixels = NDArray[np.uint8]


def to_planes(pixels: Pixels) -> Pixels:
    """The planes, (3 m, height, width), green first, of images (m, height, width, 3) in red, green, blue."""
    red, green, blue = np.moveaxis(pixels, -1, 0)
    return np.concatenate([green, red - green + MIDDLE, blue - green + MIDDLE])


def from_planes(planes: Pixels) -> Pixels:
    """The inverse of ``to_planes``: images (m, height, width, 3) from planes (3 m, height, width)."""
    green, red, blue = np.split(planes, 3)
    return np.stack([red + green - MIDDLE, green, blue + green - MIDDLE], axis=-1)
