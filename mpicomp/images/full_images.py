"""An autoregressive model of grey images with a wider view than the local one; a sample is a pixel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.images.pixels import PixelModel


@dataclass(frozen=True)
class FullImages(PixelModel):
    """``LocalImages`` whose network has a wider view and the position of the pixel as inputs.

    The network's inputs are the p neighbours' values divided by 255, then ``height`` entries that are 0 but
    for a 1 at the pixel's row, then ``width`` entries that are 0 but for a 1 at its column.  All else is as
    in ``LocalImages``, and all images have one height and one width.

    The score of an image is log p_full - log p_local, of two models trained on the same images: what both
    find in any image, such as smoothness, cancels, and it is high for images like those of the training.

    Source: Zhang, Zhang, McDonagh, "On the out-of-distribution generalization of probabilistic image
    modelling", NeurIPS 2021, written from memory; its full model is a deep network on all earlier pixels.
    """

    positions: ClassVar[bool] = True

    horizon: int = 7
    hidden: int = 128
