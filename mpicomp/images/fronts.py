"""The order in which pixels are coded: fronts, sets of pixels that do not depend on each other.

Pixel (row, column) sees at most ``horizon`` columns aside, in rows above it.  All pixels with the same

    t = column + (horizon + 1) row

depend on pixels with smaller t only, so they are decoded at once.  An image of 28 x 28 has 136 fronts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpicomp.images.experts import NEAR, predictions, seen

Offsets = NDArray[np.int64]


class Front(NamedTuple):
    """The positions of the pixels of one front, in all images, and the predictions of their values."""

    at: Offsets  # in the padded images, flat, image by image
    centres: NDArray[np.uint8]  # (pixels, 10): the predictions


class Canvas:
    """Images of one shape, (m, height, width), with ``horizon`` zeros above and on both sides of each."""

    def __init__(self, shape: tuple[int, ...], horizon: int) -> None:
        m, height, width = shape
        self.height, self.width, self.horizon = height, width, horizon
        self.padded = np.zeros((m, height + horizon, width + 2 * horizon), dtype=np.uint8)
        self.flat = self.padded.reshape(-1)
        self.seen = self._offsets(seen(horizon))
        self.near = dict(zip(NEAR, self._offsets(list(NEAR.values())), strict=True))

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """The images without the zeros, (m, height, width), a view."""
        return self.padded[:, self.horizon :, self.horizon : self.horizon + self.width]

    def fronts(self) -> Iterator[Front]:
        """Yield the fronts in order; each is made from the pixel values present when it is asked for."""
        m, tall, wide = self.padded.shape
        images = np.arange(m) * (tall * wide)
        h = self.horizon
        for t in range(self.width + (h + 1) * (self.height - 1)):
            rows = np.arange(
                max(0, -(-(t - self.width + 1) // (h + 1))), min(self.height - 1, t // (h + 1)) + 1
            )
            if not rows.size:  # images narrower than the horizon
                continue
            within = (rows + h) * wide + t - (h + 1) * rows + h
            at = (images[:, None] + within).ravel()
            near = {name: self.flat[at + offset].astype(np.int16) for name, offset in self.near.items()}
            centres = np.stack(predictions(near), axis=1).astype(np.uint8)
            yield Front(at, centres)

    def neighbours(self, at: Offsets) -> NDArray[np.float32]:
        """The neighbours of the pixels at ``at``, shape (pixels, 2 horizon (horizon + 1)), from 0 to 255."""
        return self.flat[at[:, None] + self.seen].astype(np.float32)

    def _offsets(self, steps: list[tuple[int, int]]) -> Offsets:
        return np.array([down * self.padded.shape[2] + right for down, right in steps])
