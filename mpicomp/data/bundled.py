"""Read the real data sets that come with scikit-learn, so that the first run needs no download."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp.base.extras import needed_by

BUNDLED = ("breast_cancer", "digits")
BUNDLED_IMAGES = ("digits",)


def read_bundled(name: str) -> tuple[scipy.sparse.csr_array, NDArray[np.float64]]:
    """Rows (m, d) and labels (m,) of one of ``BUNDLED``.

    =============  =========  ===================================================================
    breast_cancer  569 x 30   columns standardised; label 0 malignant, 1 benign
    digits         1797 x 64  8 x 8 pixels in [0, 1]; label 1 for an odd digit, 0 for an even one
    =============  =========  ===================================================================
    """
    # Imported here because the import is slow, and a cached set does not need it.
    with needed_by(f"the data set {name}", "lab"):
        from sklearn import datasets

    if name == "digits":
        pixels, digit = datasets.load_digits(return_X_y=True)
        return scipy.sparse.csr_array(pixels / 16.0), (digit % 2).astype(np.float64)
    columns, label = datasets.load_breast_cancer(return_X_y=True)
    columns = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    return scipy.sparse.csr_array(columns), label.astype(np.float64)


def read_bundled_images(name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8], int]:
    """Pixels (m, p), labels (m,) and the value of white of one of ``BUNDLED_IMAGES``.

    digits: 1797 images of 8 x 8 pixels from 0 to 16, the digits 0 to 9.
    """
    with needed_by(f"the data set {name}", "lab"):
        from sklearn import datasets

    pixels, digit = datasets.load_digits(return_X_y=True)
    return pixels.astype(np.uint8), digit.astype(np.uint8), 16
