"""Score images by models, to tell images like the training images from others, and judge the scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpicomp.base.errors import DataError
from mpicomp.base.units import one_line
from mpicomp.data import as_name
from mpicomp.images.grey import GreyImages, load_grey
from mpicomp.images.model import ImageModel

POOLED = 7  # rows and columns of blocks
RIDGE = 1e-4  # added to the variances of the blocks' means, which are from 0 to 1

Reals = NDArray[np.float64]


def auroc(inside: ArrayLike, outside: ArrayLike) -> float:
    """P(s > t) + P(s = t) / 2, for s drawn from the scores ``inside`` and t from those ``outside``.

    It is 1 if every score inside is above every score outside, and 1/2 for scores without information.  The
    counts come from one sort: m log m steps for m scores.  Infinite scores are allowed.  Raises ``DataError``
    if a set is empty, has another shape than (m,), or has a NaN.

    Source: Mann, Whitney, "On a test of whether one of two random variables is stochastically larger than
    the other", Annals of Mathematical Statistics 1947.
    """
    s, t = _checked("inside", inside), np.sort(_checked("outside", outside))
    below, up_to = np.searchsorted(t, s, side="left"), np.searchsorted(t, s, side="right")
    return int(below.sum() + up_to.sum()) / (2 * s.size * t.size)


def _checked(name: str, scores: ArrayLike) -> Reals:
    try:
        array = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"the scores {name} are {one_line(scores)}; allowed: real numbers.") from None
    if array.ndim != 1 or not array.size or np.isnan(array).any():
        raise DataError(
            f"the scores {name} have shape {array.shape} and {int(np.isnan(array).sum())} NaN; allowed: at "
            "least 1 number, in one axis, without NaN. Leave NaN out."
        )
    return array


@dataclass(frozen=True, eq=False)
class Score:
    """One number for each image, high for images like the training images: of two sets, with shapes (m,)."""

    name: str
    inside: Reals
    outside: Reals

    @property
    def auroc(self) -> float:
        """The probability that one of ``inside`` has a higher score than one of ``outside``."""
        return auroc(self.inside, self.outside)


def scores(
    local: ImageModel, full: ImageModel, inside: Any, outside: Any, training: Any = None
) -> list[Score]:
    """Score two sets of images of one shape, each given as a name, a path or an array.

    They are log p of the full model minus log p of the local one, the score of Zhang, Zhang and McDonagh
    (NeurIPS 2021); log p of either model; and with ``training``, the images that the models were trained on,
    ``pooled_gaussian``, which needs no network.
    """
    sets = inside, outside
    near, far = ([model.log_likelihoods(data) for data in sets] for model in (local, full))
    found = [
        Score("full - local", *(f - n for f, n in zip(far, near, strict=True))),
        Score("full", *far),
        Score("local", *near),
    ]
    if training is not None:
        log_p = pooled_gaussian(training)
        found.append(Score("pooled Gaussian", *map(log_p, sets)))
    return found


def pooled_gaussian(training: Any) -> Callable[[Any], Reals]:
    """log p of a normal distribution of the means of 7 x 7 blocks, up to a constant, fitted to ``training``.

    Images are given as a name, a path or an array of shape (m, height, width), and have at least 7 rows and
    columns.  Raises ``DataError`` for other images, such as floats from 0 to 1, and for fewer than 2.
    """
    blocks = _blocks(_pixels(training))
    if len(blocks) < 2:
        raise DataError("a normal distribution is fitted to 2 images or more; got 1.")
    mean = blocks.mean(axis=0)
    covariance = np.cov(blocks, rowvar=False) + RIDGE * np.eye(blocks.shape[1])
    factor = np.linalg.cholesky(covariance)

    def log_p(images: Any) -> Reals:
        white = np.linalg.solve(factor, (_blocks(_pixels(images)) - mean).T)
        return -0.5 * np.einsum("ji,ji->i", white, white)

    return log_p


def _blocks(pixels: NDArray[np.uint8]) -> Reals:
    if min(pixels.shape[1:]) < POOLED:
        raise DataError(
            f"images of {pixels.shape[1]} x {pixels.shape[2]} pixels; allowed: {POOLED} x {POOLED} or more."
        )
    sums = pixels / 255.0
    for axis in (1, 2):
        edges = np.arange(POOLED + 1) * pixels.shape[axis] // POOLED
        sizes = np.diff(edges).reshape((-1, 1) if axis == 1 else (1, -1))
        sums = np.add.reduceat(sums, edges[:-1], axis=axis) / sizes
    return sums.reshape(len(pixels), -1)


def _pixels(data: Any) -> NDArray[np.uint8]:
    data = as_name(data)
    return (load_grey(data) if isinstance(data, str) else GreyImages.of(data)).pixels
