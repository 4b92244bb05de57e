"""Sets of grey images, each image with a class label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import DataError
from mpicomp.data.dataset import content_sha256

Rows = slice | NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Images:
    """``pixels`` uint8 of shape (m, p) from 0, black, to ``white``; ``labels`` uint8 (m,) below ``classes``.

    Both are read-only.  ``sha256`` identifies the content; it does not depend on the files.
    """

    name: str
    pixels: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    white: int
    classes: int
    sha256: str

    @staticmethod
    def of(name: str, pixels: NDArray[np.uint8], labels: NDArray[np.uint8], white: int) -> Images:
        """A set from arrays in memory.  Raises ``DataError`` unless there is one label for each image."""
        if labels.shape != pixels.shape[:1]:
            raise DataError(f"{name} has {len(pixels)} images and {labels.size} labels. Get its files again.")
        pixels = pixels.reshape(len(pixels), -1)
        for array in (pixels, labels):
            array.flags.writeable = False
        sha256 = content_sha256((pixels.shape, white), pixels, labels)
        return Images(name, pixels, labels, white, int(labels.max()) + 1, sha256)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, p): the numbers of images and of pixels in an image."""
        m, p = self.pixels.shape
        return m, p

    def intensities(self, rows: Rows) -> NDArray[np.float64]:
        """The pixels of the images ``rows`` as numbers from 0 to 1, shape (number of rows, p)."""
        return self.pixels[rows] / float(self.white)
